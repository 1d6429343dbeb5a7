#include "chunkstore/read/image_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"

namespace varve::chunkstore {
namespace {

constexpr size_t kPrefixDigitsMin = 4;
constexpr std::string_view kRefsPrefix = "refs/";

bool is_id_prefix(std::string_view text) {
  return text.size() >= kPrefixDigitsMin && text.size() <= 64 &&
         std::ranges::all_of(
             text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Result<StoredImage> ImageStore::image(const Digest& id, Deadline deadline) const {
  VARVE_ASSIGN(const Bytes bytes, store_->get(image_key(id), kImageJsonBytesMax, deadline));
  const Digest found = sha256(bytes);
  if (found != id) {
    return fail(ErrorCode::kCorruption,
                fmt::format("image {}: content has the hash {}", id.hex(), found.hex()));
  }
  auto image = parse_image(bytes);
  if (!image) return fail(std::move(image).error(), "image " + id.hex());
  return StoredImage{id, std::move(*image)};
}

Result<StoredImage> ImageStore::resolve(std::string_view text, Deadline deadline) const {
  if (const auto id = Digest::from_hex(text)) return image(*id, deadline);
  const auto name = parse_ref(text);
  if (name) {
    auto id = ref(*name, deadline);
    if (id) {
      auto found = image(*id, deadline);
      if (!found) return fail(std::move(found).error(), "ref " + name->to_string());
      return found;
    }
    if (id.error().code() != ErrorCode::kNotFound) return tl::unexpected(std::move(id).error());
  }
  VARVE_ASSIGN(const auto id, find_by_prefix("images/", "image", text, deadline));
  if (id) return image(*id, deadline);
  if (!name && !is_id_prefix(text)) return tl::unexpected(name.error());
  return fail(ErrorCode::kNotFound,
              fmt::format("no image {} in store {}", quoted(text), quoted(store_->url())));
}

Result<std::optional<Digest>> ImageStore::find_layer(std::string_view text,
                                                     Deadline deadline) const {
  return find_by_prefix("layers/", "layer", text, deadline);
}

Result<std::optional<Digest>> ImageStore::find_by_prefix(std::string_view directory,
                                                         std::string_view what,
                                                         std::string_view text,
                                                         Deadline deadline) const {
  std::optional<Digest> found;
  if (!is_id_prefix(text)) return found;
  const std::string prefix = std::string(directory) + std::string(text);
  const auto visit = [&](const std::string& key, const ObjectInfo&) -> Status {
    const auto id = digest_of_key(key);
    if (!id || !key.starts_with(prefix)) return {};
    if (found) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} fits more than one {}: {} and {}", quoted(text), what,
                              found->hex(), id->hex()));
    }
    found = *id;
    return {};
  };
  VARVE_TRY(store_->list(directory, visit, deadline));
  return found;
}

Result<Digest> ImageStore::ref(const RefName& ref, Deadline deadline) const {
  VARVE_ASSIGN(const Bytes bytes, store_->get(ref_key(ref), kPointerBytes, deadline));
  auto id = parse_pointer(bytes);
  if (!id) return fail(std::move(id).error(), "ref " + ref.to_string());
  return id;
}

Result<std::vector<StoredRef>> ImageStore::refs(Deadline deadline,
                                                std::vector<Error>* damaged) const {
  std::vector<RefName> names;
  const auto visit = [&](const std::string& key, const ObjectInfo&) -> Status {
    const std::string_view text = std::string_view(key).substr(kRefsPrefix.size());
    if (text.find(':') == std::string_view::npos) return {};
    if (auto name = parse_ref(text)) names.push_back(std::move(*name));
    return {};
  };
  VARVE_TRY(store_->list(kRefsPrefix, visit, deadline));
  std::ranges::sort(names);
  std::vector<StoredRef> refs;
  for (RefName& name : names) {
    auto id = ref(name, deadline);
    // Removed since it was listed.
    if (!id && id.error().code() == ErrorCode::kNotFound) continue;
    if (!id && damaged != nullptr && id.error().code() == ErrorCode::kCorruption) {
      damaged->push_back(std::move(id).error());
      continue;
    }
    if (!id) return tl::unexpected(std::move(id).error());
    refs.push_back({std::move(name), *id});
  }
  return refs;
}

Result<std::vector<Digest>> ImageStore::images(Deadline deadline) const {
  std::vector<Digest> ids;
  const auto visit = [&](const std::string& key, const ObjectInfo&) -> Status {
    if (const auto id = digest_of_key(key)) ids.push_back(*id);
    return {};
  };
  VARVE_TRY(store_->list("images/", visit, deadline));
  std::ranges::sort(ids);
  return ids;
}

Status ImageStore::remove_ref(const RefName& ref, Deadline deadline) const {
  return store_->remove(ref_key(ref), deadline);
}

}  // namespace varve::chunkstore
