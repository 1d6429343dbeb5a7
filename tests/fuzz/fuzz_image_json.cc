// Every text object of a store: images, leases, tombstones, the marker, pointers and names of refs.

#include <algorithm>

#include "chunkstore/format/image.h"
#include "chunkstore/format/lease.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/format/ref.h"

using namespace varve;
using namespace varve::chunkstore;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteView bytes(data, size);
  if (const auto image = parse_image(bytes)) {
    const auto encoded = encode_image(*image);
    if (!encoded || parse_image(*encoded).value() != *image) __builtin_trap();
  }
  if (const auto lease = parse_lease(bytes)) {
    if (parse_lease(encode_lease(*lease))->objects != lease->objects) __builtin_trap();
  }
  (void)parse_tombstone(bytes);
  (void)parse_store_marker(bytes);
  (void)parse_pointer(bytes);
  if (const auto ref = parse_ref(as_text(bytes))) {
    if (parse_ref(ref->to_string()).value() != *ref) __builtin_trap();
    if (ref->to_string().find("..") != std::string::npos &&
        ref->name.find("..") != std::string::npos) {
      __builtin_trap();
    }
  }
  return 0;
}
