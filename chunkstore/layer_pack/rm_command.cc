// rm.
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/text_output.h"

namespace varve::layer_pack {
namespace {

namespace json = boost::json;
using chunkstore::ImageStore;
using chunkstore::RefName;

/// A name that is there, and what it points at unless it is damaged.
struct FoundName {
  RefName name;
  std::optional<Digest> image;
};

/// Whether `text` is an id, or the unique prefix of one, of an image or layer of the store.
bool is_known_id(const ImageStore& images, const std::string& text) {
  if (Digest::from_hex(text)) return true;
  const auto name = resolve_name(images, text);
  return name.has_value();
}

Result<FoundName> find_name(const ImageStore& images, const std::string& text) {
  const auto name = chunkstore::parse_ref(text);
  if (!name && !Digest::from_hex(text)) return tl::unexpected(name.error());
  if (name) {
    // By the look of the key: a damaged name can be removed, too.
    const auto found = images.store().stat(chunkstore::ref_key(*name), store_deadline());
    if (found) {
      auto image = images.ref(*name, store_deadline());
      if (image) return FoundName{*name, *image};
      if (image.error().code() == ErrorCode::kCorruption) return FoundName{*name, {}};
      return tl::unexpected(std::move(image).error());
    }
    if (found.error().code() == ErrorCode::kCorruption) return FoundName{*name, {}};
    if (found.error().code() != ErrorCode::kNotFound) return tl::unexpected(found.error());
  }
  if (is_known_id(images, text)) {
    return fail(ErrorCode::kInvalidArgument,
                quoted(text) + " is an id, not a name: gc deletes images that have no name");
  }
  return fail(ErrorCode::kNotFound, fmt::format("no name {} in store {}", quoted(name->to_string()),
                                                quoted(images.store().url())));
}

Status report_removed(const ToolIo& io, bool is_json, const std::vector<FoundName>& removed) {
  json::array entries;
  for (const FoundName& found : removed) {
    const std::string ref = found.name.to_string();
    if (!is_json) {
      print_line(io, "removed " + ref);
      continue;
    }
    entries.push_back(json::object{
        {"ref", ref}, {"image", found.image ? json::value(found.image->hex()) : json::value()}});
  }
  if (is_json) print_json(io, json::object{{"removed", std::move(entries)}});
  return finish_output(io);
}

}  // namespace

Status run_rm(const RmOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  const ImageStore images(std::move(store));
  std::vector<FoundName> found;
  for (const std::string& text : options.names) {
    VARVE_ASSIGN(FoundName name, find_name(images, text));
    if (std::ranges::find(found, name.name, &FoundName::name) != found.end()) continue;
    found.push_back(std::move(name));
  }
  for (const FoundName& name : found) {
    auto removed = images.remove_ref(name.name, store_deadline());
    // Somebody else was faster: it is gone as asked.
    if (removed || removed.error().code() == ErrorCode::kNotFound) continue;
    return fail(std::move(removed).error(), "removing the name " + name.name.to_string());
  }
  return report_removed(io, options.is_json, found);
}

}  // namespace varve::layer_pack
