#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "chunkstore/format/ref.h"

/// The keys of a store's objects. Defined by varve-store(5), section KEYS.
namespace varve::chunkstore {

/// `varve-store`: what makes a place a store.
inline constexpr std::string_view kStoreMarkerKey = "varve-store";

std::string pack_key(const Digest& pack);
std::string layer_key(const Digest& layer);
std::string placement_key(const Digest& layer, const Digest& placement);
std::string current_placement_key(const Digest& layer);
std::string image_key(const Digest& image);
/// `refs/<name>:<tag>`. One object a ref, and never a prefix of another ref's directory.
std::string ref_key(const RefName& ref);
std::string lease_key(std::string_view uuid);
/// `tombstones/` and the key it condemns.
std::string tombstone_key(std::string_view key);

/// The digest that ends a pack, layer, image or placement key; nothing when it does not.
std::optional<Digest> digest_of_key(std::string_view key);

}  // namespace varve::chunkstore
