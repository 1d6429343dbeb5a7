// build, diff, compose and flatten.
#include <algorithm>

#include "base/bytes.h"
#include "chunkstore/build/publish.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/layer_pack/build_session.h"
#include "chunkstore/layer_pack/commands.h"
#include "chunkstore/layer_pack/directory_index.h"
#include "chunkstore/layer_pack/flatten_inputs.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/progress.h"
#include "chunkstore/layer_pack/source_plan.h"
#include "chunkstore/source/directory_source.h"

namespace varve::layer_pack {
namespace {

using chunkstore::DirectoryAttributes;

/// The directory `path` of the image; nothing when there is none.
Result<std::optional<DirectoryAttributes>> find_directory(const ImageView& view,
                                                          std::string_view path) {
  auto node = view.tree().walk(path);
  if (!node) {
    if (node.error().code() == ErrorCode::kNotFound) return std::optional<DirectoryAttributes>();
    return fail(std::move(node).error(), "looking up directory " + quoted(path) + " in the base");
  }
  if (!node->is_directory()) return std::optional<DirectoryAttributes>();
  VARVE_ASSIGN(const auto inode, view.tree().inode(*node));
  DirectoryAttributes attributes;
  attributes.mode = inode.mode & 07777;
  attributes.uid = inode.uid;
  attributes.gid = inode.gid;
  attributes.mtime_s = inode.mtime_s;
  attributes.mtime_ns = inode.mtime_ns;
  VARVE_ASSIGN(attributes.xattrs, view.tree().xattrs(*node));
  return std::optional<DirectoryAttributes>(std::move(attributes));
}

/// What lies below the layers that are being built.
struct Base {
  ImageParts parts;
  std::optional<ImageView> view;
};

Result<Base> open_base(const std::shared_ptr<chunkstore::Store>& store, const std::string& name,
                       const std::string& temp_directory) {
  Base base;
  if (name.empty()) return base;
  VARVE_ASSIGN(base.parts, read_parts(store, name, temp_directory));
  VARVE_ASSIGN(ImageView view, ImageView::open(store, base.parts.layers, temp_directory));
  base.view.emplace(std::move(view));
  return base;
}

Result<std::optional<DirectoryAttributes>> find_below(const Base& base, DirectoryIndex* index,
                                                      uint32_t layer, std::string_view path) {
  if (index != nullptr) {
    VARVE_ASSIGN(DirectoryIndex::Answer answer, index->find(layer, path));
    if (answer.attributes || answer.is_hidden) return std::move(answer.attributes);
  }
  if (base.view) return find_directory(*base.view, path);
  return std::optional<DirectoryAttributes>();
}

Status build_layers(const SourcePlan& plan, const Base& base, BuildSession& session,
                    Progress& progress) {
  std::unique_ptr<DirectoryIndex> index;
  if (plan.layers.size() > 1) {
    VARVE_ASSIGN(index, DirectoryIndex::create(session.temp_directory()));
  }
  for (uint32_t i = 0; i < plan.layers.size(); ++i) {
    chunkstore::LayerBuilderOptions options = session.builder_options();
    options.base_directory = [&, i](std::string_view path) {
      return find_below(base, index.get(), i, path);
    };
    VARVE_ASSIGN(const auto source, plan.layers[i].open());
    VARVE_TRY(session.build_layer(*source, std::move(options), progress, index.get(), i));
  }
  return {};
}

}  // namespace

Status run_build(const BuildOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(const auto tag, parse_tag(options.tag));
  VARVE_TRY(check_temp_dir(options.pack));
  chunkstore::ImageConfig asked;
  for (const std::string& assignment : options.env) VARVE_TRY(set_env(asked.env, assignment));
  VARVE_ASSIGN(const SourcePlan plan, plan_source(options));
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/true));
  VARVE_ASSIGN(Base base, open_base(store, options.base, options.pack.temp_directory));
  VARVE_ASSIGN(const auto session, BuildSession::open(store, options.pack, io));
  // From here on garbage collection leaves the base alone.
  VARVE_TRY(chunkstore::hold_layers(*store, session->packs().lease(), base.parts.layers));
  {
    Progress progress(io, "packing");
    VARVE_TRY(build_layers(plan, base, *session, progress));
  }
  base.parts.config =
      merge_configs(merge_configs(std::move(base.parts.config), plan.config), asked);
  VARVE_ASSIGN(const PublishedImage image, session->publish(std::move(base.parts), tag));
  return print_published(io, options.is_json, image, session->new_layers(),
                         session->packs().stats());
}

Status run_diff(const DiffOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(const auto tag, parse_tag(options.tag));
  VARVE_TRY(check_temp_dir(options.pack));
  chunkstore::DirectoryOptions directory;
  directory.mode = chunkstore::DirectoryMode::kOverlayUpper;
  directory.has_user_marks = options.has_user_marks;
  directory.temp_directory = chunkstore::temp_directory_or_default(options.pack.temp_directory);
  VARVE_ASSIGN(const auto source, chunkstore::open_directory_source(options.directory, directory));
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  VARVE_ASSIGN(Base base, open_base(store, options.base, options.pack.temp_directory));
  VARVE_ASSIGN(const auto session, BuildSession::open(store, options.pack, io));
  // From here on garbage collection leaves the base alone.
  VARVE_TRY(chunkstore::hold_layers(*store, session->packs().lease(), base.parts.layers));
  {
    Progress progress(io, "packing");
    VARVE_TRY(session->build_layer(*source, session->builder_options(), progress));
  }
  VARVE_ASSIGN(const PublishedImage image, session->publish(std::move(base.parts), tag));
  return print_published(io, options.is_json, image, session->new_layers(),
                         session->packs().stats());
}

Status run_flatten(const FlattenOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(const auto tag, parse_tag(options.tag));
  VARVE_TRY(check_temp_dir(options.pack));
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  VARVE_ASSIGN(const auto session, BuildSession::open(store, options.pack, io));
  VARVE_ASSIGN(ImageParts parts, read_parts(store, options.image, session->temp_directory()));
  VARVE_ASSIGN(const ImageView view,
               ImageView::open(store, parts.layers, session->temp_directory()));
  for (size_t layer = 0; layer < view.layer_count(); ++layer) {
    VARVE_TRY(session->packs().adopt(view.source(layer).map()));
  }
  VARVE_ASSIGN(const auto inputs, flatten_inputs(view));
  chunkstore::FlattenOptions flatten_options;
  flatten_options.sort_memory_bytes = session->builder_options().sort_memory_bytes;
  flatten_options.temp_directory = session->temp_directory();
  VARVE_ASSIGN(chunkstore::BuiltLayer built,
               chunkstore::flatten(inputs, flatten_options, session->packs()));
  session->add_layer(std::move(built));
  // The flattened layer takes the place of the others, and brings the ids that are left.
  parts.layers.clear();
  parts.ids.clear();
  VARVE_ASSIGN(const PublishedImage image, session->publish(std::move(parts), tag));
  return print_published(io, options.is_json, image, session->new_layers(),
                         session->packs().stats());
}

Status run_compose(const ComposeOptions& options, const ToolIo& io) {
  VARVE_ASSIGN(const auto tag, parse_tag(options.tag));
  VARVE_ASSIGN(auto store, chunkstore::open_store(options.store, /*create=*/false));
  // Taken before anything is looked at, so that nothing of it can go meanwhile.
  VARVE_ASSIGN(const auto lease, chunkstore::Lease::take(store));
  ImageParts all;
  for (const std::string& name : options.parts) {
    VARVE_ASSIGN(ImageParts parts, read_parts(store, name));
    all.layers.insert(all.layers.end(), parts.layers.begin(), parts.layers.end());
    all.ids.insert(parts.ids.begin(), parts.ids.end());
    all.config = merge_configs(std::move(all.config), parts.config);
    // As with labels, the upper image's replace those of the same name.
    parts.annotations.merge(all.annotations);
    all.annotations = std::move(parts.annotations);
  }
  VARVE_ASSIGN(all.layers, visible_layers(store, std::move(all.layers)));
  VARVE_ASSIGN(const Digest id, publish_parts(*store, *lease, all, tag));
  VARVE_TRY(lease->release());
  return print_published(io, options.is_json, {id, std::move(all.layers), tag}, {}, std::nullopt);
}

}  // namespace varve::layer_pack
