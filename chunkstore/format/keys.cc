#include "chunkstore/format/keys.h"

namespace varve::chunkstore {

std::string pack_key(const Digest& pack) {
  const std::string hex = pack.hex();
  return "packs/" + hex.substr(0, 2) + "/" + hex;
}
std::string layer_key(const Digest& layer) {
  return "layers/" + layer.hex();
}
std::string placement_key(const Digest& layer, const Digest& placement) {
  return "placements/" + layer.hex() + "/" + placement.hex();
}
std::string current_placement_key(const Digest& layer) {
  return "placements/" + layer.hex() + "/current";
}
std::string image_key(const Digest& image) {
  return "images/" + image.hex();
}
std::string ref_key(const RefName& ref) {
  return "refs/" + ref.to_string();
}
std::string lease_key(std::string_view uuid) {
  return "leases/" + std::string(uuid);
}
std::string tombstone_key(std::string_view key) {
  return "tombstones/" + std::string(key);
}

std::optional<Digest> digest_of_key(std::string_view key) {
  const size_t slash = key.rfind('/');
  return Digest::from_hex(slash == std::string_view::npos ? key : key.substr(slash + 1));
}

}  // namespace varve::chunkstore
