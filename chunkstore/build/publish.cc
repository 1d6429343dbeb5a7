#include "chunkstore/build/publish.h"

#include <string>
#include <vector>

#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/store/closure.h"

namespace varve::chunkstore {
Status hold_layers(Store& store, Lease& lease, std::span<const Digest> layers,
                   const SleepFunction& sleep) {
  std::vector<std::string> keys;
  for (const Digest& layer : layers) {
    auto closure = layer_closure(store, layer, kNoDeadline);
    if (!closure) return fail(std::move(closure).error(), "layer " + layer.hex());
    keys.insert(keys.end(), closure->begin(), closure->end());
  }
  VARVE_TRY(lease.add(keys));
  VARVE_TRY(claim(store, keys, sleep));
  for (const std::string& key : keys) VARVE_TRY(store.stat(key, kNoDeadline));
  return {};
}

Result<Digest> publish_image(Store& store, Lease& lease, const Image& image,
                             const SleepFunction& sleep) {
  VARVE_ASSIGN(const Bytes bytes, encode_image(image));
  const Digest id = sha256(bytes);
  VARVE_TRY(hold_layers(store, lease, image.layers, sleep));
  const std::string key = image_key(id);
  VARVE_TRY(lease.add({&key, 1}));
  VARVE_TRY(claim(store, {&key, 1}, sleep));
  VARVE_TRY(lease.renew());
  VARVE_TRY(store.put_if_absent(key, bytes, kNoDeadline));
  return id;
}

Status publish_ref(Store& store, Lease& lease, const RefName& ref, const Digest& image,
                   const SleepFunction& sleep) {
  const std::string key = image_key(image);
  VARVE_TRY(lease.add({&key, 1}));
  VARVE_TRY(claim(store, {&key, 1}, sleep));
  VARVE_ASSIGN(const StoredImage stored,
               ImageStore({&store, [](Store*) {}}).image(image, kNoDeadline));
  VARVE_TRY(hold_layers(store, lease, stored.image.layers, sleep));
  VARVE_TRY(lease.renew());
  return store.replace(ref_key(ref), as_bytes(encode_pointer(image)), kNoDeadline);
}

}  // namespace varve::chunkstore
