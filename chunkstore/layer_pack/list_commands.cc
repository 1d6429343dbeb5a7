// ls, tree, cat and inspect.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

#include "base/bytes.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/erofs/merged_walk.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/output_file.h"
#include "chunkstore/layer_pack/text_output.h"
#include "chunkstore/source/archive_path.h"

namespace varve::layer_pack {
namespace {

namespace erofs = chunkstore::erofs;
namespace json = boost::json;

constexpr size_t kCopyBytes = 1 << 20;

Result<ImageView> open_view(const CommonOptions& options, const std::string& image) {
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  VARVE_ASSIGN(const ResolvedName name, resolve_name(chunkstore::ImageStore(store), image));
  return ImageView::open(std::move(store), name.layers);
}

/// Prints one path: as a JSON line, or as `ls -l` would.
Status print_node(const ToolIo& io, bool is_json, const erofs::MergedTree& tree,
                  const erofs::MergedNode& node, std::string_view path, size_t indent) {
  VARVE_ASSIGN(const erofs::Inode inode, tree.inode(node));
  std::string target;
  if (S_ISLNK(inode.mode)) {
    VARVE_ASSIGN(target, tree.reader(node).read_link(inode));
  }
  if (is_json) {
    json::object object;
    add_path(object, path);
    add_inode(object, inode);
    if (S_ISLNK(inode.mode)) {
      json::object link;
      add_path(link, target);
      object["target"] = std::move(link);
    }
    print_json(io, object);
    return output_status(io);
  }
  const bool is_device = S_ISCHR(inode.mode) || S_ISBLK(inode.mode);
  const std::string size =
      is_device ? fmt::format("{},{}", gnu_dev_major(inode.rdev), gnu_dev_minor(inode.rdev))
                : std::to_string(inode.size);
  std::string line =
      fmt::format("{} {:>3} {:>5} {:>5} {:>10} {:<20} {}{}", shown_mode(inode.mode), inode.nlink,
                  inode.uid, inode.gid, size, shown_time(inode.mtime_s, inode.mtime_ns),
                  std::string(indent, ' '), shown_name(path));
  if (S_ISLNK(inode.mode)) line += " -> " + shown_name(target);
  print_line(io, line);
  return output_status(io);
}

Status list_images(const ListOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  const chunkstore::ImageStore images(std::move(store));
  std::vector<Error> damaged;
  VARVE_ASSIGN(const auto refs, images.refs(store_deadline(), &damaged));
  for (const chunkstore::StoredRef& ref : refs) {
    if (options.is_json) {
      print_json(io, json::object{{"ref", ref.name.to_string()}, {"image", ref.image.hex()}});
    } else {
      print_line(io, fmt::format("{}  {}", ref.image.short_hex(), ref.name.to_string()));
    }
  }
  VARVE_TRY(finish_output(io));
  return report_damaged_names(io, options.store, damaged);
}

json::object config_json(const chunkstore::ImageConfig& config) {
  json::object labels;
  for (const auto& [key, value] : config.labels) labels[key] = value;
  return {{"env", json::value_from(config.env)},
          {"cwd", config.cwd},
          {"user", config.user},
          {"entrypoint", json::value_from(config.entrypoint)},
          {"cmd", json::value_from(config.cmd)},
          {"stop_signal", config.stop_signal},
          {"labels", std::move(labels)}};
}

json::object layer_json(const Digest& id, const chunkstore::LayerMap& map) {
  const chunkstore::LayerHeader& header = map.header();
  return {{"id", id.hex()},
          {"image_bytes", header.image_size},
          {"metadata_bytes", header.metadata_size},
          {"stored_bytes", map.stored_bytes()},
          {"chunks", header.chunk_count}};
}

void print_inspection(const ToolIo& io, const json::object& found) {
  const auto text = [](const json::value& value) { return std::string(value.as_string()); };
  if (found.contains("image")) print_line(io, "image  " + text(found.at("image")));
  for (const json::value& ref : found.at("refs").as_array()) print_line(io, "ref    " + text(ref));
  for (const json::value& value : found.at("layers").as_array()) {
    const json::object& layer = value.as_object();
    print_line(io, fmt::format("layer  {}  image {}, metadata {}, stored {} in {} chunks",
                               text(layer.at("id")),
                               human_bytes(layer.at("image_bytes").to_number<uint64_t>()),
                               human_bytes(layer.at("metadata_bytes").to_number<uint64_t>()),
                               human_bytes(layer.at("stored_bytes").to_number<uint64_t>()),
                               layer.at("chunks").to_number<uint64_t>()));
  }
  if (!found.contains("config")) return;
  for (const auto& member : found.at("config").as_object()) {
    const json::value& value = member.value();
    const bool is_empty = (value.is_string() && value.get_string().empty()) ||
                          (value.is_array() && value.get_array().empty()) ||
                          (value.is_object() && value.get_object().empty());
    if (!is_empty) {
      print_line(io, fmt::format("{:<6} {}", std::string_view(member.key()), shown_json(value)));
    }
  }
  const json::array& ids = found.at("ids").as_array();
  if (!ids.empty()) print_line(io, "ids    " + json::serialize(ids));
}

}  // namespace

Status run_ls(const ListOptions& options, const ToolIo& io) {
  if (options.image.empty()) return list_images(options, io);
  VARVE_ASSIGN(const ImageView view, open_view(options, options.image));
  VARVE_ASSIGN(const erofs::MergedNode node, view.find(options.path, /*follow_last=*/true));
  if (!node.is_directory()) {
    VARVE_TRY(print_node(io, options.is_json, view.tree(), node, options.path, 0));
    return finish_output(io);
  }
  VARVE_TRY(view.tree().read_directory(
      node, [&](const std::string& name, const erofs::MergedNode& child) {
        return print_node(io, options.is_json, view.tree(), child, name, 0);
      }));
  return finish_output(io);
}

Status run_tree(const ListOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(const ImageView view, open_view(options, options.image));
  VARVE_ASSIGN(const erofs::MergedNode node, view.find(options.path, /*follow_last=*/true));
  if (!node.is_directory()) {
    VARVE_TRY(print_node(io, options.is_json, view.tree(), node, options.path, 0));
    return finish_output(io);
  }
  VARVE_TRY(erofs::walk_tree(view.tree(), node, "", [&](const erofs::WalkStep& step) {
    if (options.is_json) return print_node(io, true, view.tree(), step.node, step.path, 0);
    const std::string name = step.depth == 0 ? "/" : std::string(chunkstore::base_name(step.path));
    return print_node(io, false, view.tree(), step.node, name, 2 * step.depth);
  }));
  return finish_output(io);
}

Status run_cat(const CatOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(const ImageView view, open_view(options, options.image));
  VARVE_ASSIGN(const erofs::MergedNode node, view.find(options.path, /*follow_last=*/true));
  VARVE_ASSIGN(const erofs::Inode inode, view.tree().inode(node));
  if (!S_ISREG(inode.mode)) {
    return fail(ErrorCode::kInvalidArgument, quoted(options.path) + " is not a regular file");
  }
  Bytes buffer(std::min<uint64_t>(inode.size, kCopyBytes));
  for (uint64_t offset = 0; offset < inode.size;) {
    VARVE_ASSIGN(const size_t got, view.tree().reader(node).read(inode, offset, buffer));
    write_output(io, ByteView(buffer).first(got));
    VARVE_TRY(output_status(io));
    offset += got;
  }
  return finish_output(io);
}

Status run_inspect(const InspectOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  const chunkstore::ImageStore images(store);
  VARVE_ASSIGN(const ResolvedName name, resolve_name(images, options.image));
  json::object found;
  json::array refs;
  if (name.image) {
    found["image"] = name.image->id.hex();
    std::vector<Error> damaged;  // what it would have said is not known
    VARVE_ASSIGN(const auto all_refs, images.refs(store_deadline(), &damaged));
    for (const chunkstore::StoredRef& ref : all_refs) {
      if (ref.image == name.image->id) refs.emplace_back(ref.name.to_string());
    }
  }
  found["refs"] = std::move(refs);
  json::array layers;
  for (const Digest& id : name.layers) {
    auto map = chunkstore::LayerMap::open(store, id, chunkstore::temp_directory_or_default(""),
                                          store_deadline());
    if (!map) return fail(std::move(map).error(), "opening layer " + id.short_hex());
    layers.push_back(layer_json(id, **map));
  }
  found["layers"] = std::move(layers);
  if (name.image) {
    found["config"] = config_json(name.image->image.config);
    found["ids"] = json::value_from(name.image->image.ids);
  }
  if (options.is_json) {
    print_json(io, found);
  } else {
    print_inspection(io, found);
  }
  return finish_output(io);
}

}  // namespace varve::layer_pack
