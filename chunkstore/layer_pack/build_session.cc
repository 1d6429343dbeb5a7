#include "chunkstore/layer_pack/build_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "chunkstore/build/publish.h"
#include "chunkstore/erofs/merged_walk.h"
#include "chunkstore/layer_pack/counting_sink.h"
#include "chunkstore/layer_pack/text_output.h"

namespace varve::layer_pack {
namespace {

namespace json = boost::json;
using chunkstore::ImageConfig;

/// Part of --memory-max that sorting may use; the rest is for the pipeline, the chunks in flight
/// and what a build keeps for each entry (layer_builder.h, pack_builder.h).
constexpr uint64_t kSortMemoryShare = 160;
constexpr uint64_t kMemoryShares = 512;

Result<std::set<uint32_t>> find_high_ids(const ImageView& view) {
  std::set<uint32_t> ids;
  VARVE_ASSIGN(const auto root, view.tree().root());
  VARVE_TRY(chunkstore::erofs::walk_tree(
      view.tree(), root, "", [&](const chunkstore::erofs::WalkStep& step) -> Status {
        VARVE_ASSIGN(const auto inode, view.tree().inode(step.node));
        for (const uint32_t id : {inode.uid, inode.gid}) {
          if (id >= chunkstore::kLargeIdMin) ids.insert(id);
        }
        return {};
      }));
  return ids;
}

std::string_view env_key(std::string_view assignment) {
  return assignment.substr(0, assignment.find('='));
}

json::object stats_json(const chunkstore::PackBuilderStats& stats) {
  return {{"raw_bytes", stats.raw_bytes},
          {"chunks", stats.chunk_count},
          {"new_chunks", stats.new_chunk_count},
          {"new_raw_bytes", stats.new_raw_bytes},
          {"new_stored_bytes", stats.new_stored_bytes},
          {"reused_chunks", stats.reused_chunk_count},
          {"new_packs", stats.pack_count}};
}

json::object new_layer_json(const NewLayer& layer) {
  const chunkstore::LayerCounts& counts = layer.counts;
  return {{"id", layer.published.id.hex()},
          {"is_new", layer.published.is_new},
          {"stored_bytes", layer.published.stored_bytes},
          {"image_bytes", layer.image_bytes},
          {"metadata_bytes", layer.metadata_bytes},
          {"names", counts.names},
          {"inodes", counts.inodes},
          {"directories", counts.directories},
          {"regular_files", counts.regular_files},
          {"whiteouts", counts.whiteouts},
          {"opaque_directories", counts.opaque_directories},
          {"file_bytes", counts.file_bytes},
          {"hole_bytes", counts.hole_bytes},
          {"shared_files", counts.shared_files}};
}

}  // namespace

Result<ImageParts> read_parts(const std::shared_ptr<chunkstore::Store>& store,
                              std::string_view name) {
  const chunkstore::ImageStore images(store);
  VARVE_ASSIGN(ResolvedName resolved, resolve_name(images, name));
  ImageParts parts;
  parts.layers = std::move(resolved.layers);
  if (resolved.image) {
    parts.config = std::move(resolved.image->image.config);
    parts.ids.insert(resolved.image->image.ids.begin(), resolved.image->image.ids.end());
    return parts;
  }
  VARVE_ASSIGN(const ImageView view, ImageView::open(store, parts.layers));
  VARVE_ASSIGN(parts.ids, find_high_ids(view));
  return parts;
}

Status set_env(std::vector<std::string>& env, const std::string& assignment) {
  const std::string_view key = env_key(assignment);
  if (key.empty() || key.size() == assignment.size()) {
    return fail(ErrorCode::kInvalidArgument,
                "environment entry " + quoted(assignment) + " is not of the form KEY=VALUE");
  }
  for (std::string& entry : env) {
    if (env_key(entry) == key) {
      entry = assignment;
      return {};
    }
  }
  env.push_back(assignment);
  return {};
}

ImageConfig merge_configs(ImageConfig lower, const ImageConfig& upper) {
  for (const std::string& assignment : upper.env) {
    // What is no assignment is for the image format to refuse.
    if (!set_env(lower.env, assignment)) lower.env.push_back(assignment);
  }
  for (const auto& [key, value] : upper.labels) lower.labels[key] = value;
  if (!upper.cwd.empty()) lower.cwd = upper.cwd;
  if (!upper.user.empty()) lower.user = upper.user;
  if (!upper.stop_signal.empty()) lower.stop_signal = upper.stop_signal;
  // Arguments belong to the program that they were written for.
  if (!upper.entrypoint.empty()) {
    lower.entrypoint = upper.entrypoint;
    lower.cmd = upper.cmd;
  } else if (!upper.cmd.empty()) {
    lower.cmd = upper.cmd;
  }
  return lower;
}

Result<std::optional<chunkstore::RefName>> parse_tag(const std::string& tag) {
  if (tag.empty()) return std::optional<chunkstore::RefName>();
  VARVE_ASSIGN(chunkstore::RefName ref, chunkstore::parse_ref(tag));
  return std::optional<chunkstore::RefName>(std::move(ref));
}

Result<std::vector<Digest>> visible_layers(const std::shared_ptr<chunkstore::Store>& store,
                                           std::vector<Digest> layers) {
  VARVE_ASSIGN(const ImageView view, ImageView::open(store, layers));
  VARVE_ASSIGN(const auto root, view.tree().root());
  layers.erase(layers.begin(), layers.begin() + root.parts.back().layer);
  return layers;
}

Result<Digest> publish_parts(chunkstore::Store& store, chunkstore::Lease& lease,
                             const ImageParts& parts,
                             const std::optional<chunkstore::RefName>& tag) {
  chunkstore::Image image;
  image.layers = parts.layers;
  image.config = parts.config;
  image.ids.assign(parts.ids.begin(), parts.ids.end());
  VARVE_ASSIGN(const Digest id, chunkstore::publish_image(store, lease, image));
  if (tag) VARVE_TRY(chunkstore::publish_ref(store, lease, *tag, id));
  return id;
}

Status print_published(const ToolIo& io, bool is_json, const PublishedImage& image,
                       const std::vector<NewLayer>& new_layers,
                       const std::optional<chunkstore::PackBuilderStats>& stats) {
  if (is_json) {
    json::object object{{"image", image.id.hex()}};
    if (image.tag) object["tag"] = image.tag->to_string();
    json::array layers;
    for (const Digest& layer : image.layers) layers.emplace_back(layer.hex());
    object["layers"] = std::move(layers);
    json::array made;
    for (const NewLayer& layer : new_layers) made.emplace_back(new_layer_json(layer));
    object["new_layers"] = std::move(made);
    if (stats) object["stats"] = stats_json(*stats);
    print_json(io, object);
    return finish_output(io);
  }
  for (const NewLayer& layer : new_layers) {
    print_line(io,
               fmt::format("layer  {}  {} names, image {}, stored {}{}", layer.published.id.hex(),
                           layer.counts.names, human_bytes(layer.image_bytes),
                           human_bytes(layer.published.stored_bytes),
                           layer.published.is_new ? "" : " (was there)"));
  }
  print_line(io, fmt::format("image  {}  {} layers", image.id.hex(), image.layers.size()));
  if (image.tag) print_line(io, "tag    " + image.tag->to_string());
  if (stats) {
    print_line(io, fmt::format("stored {} of {} new, {} of {} chunks",
                               human_bytes(stats->new_stored_bytes), human_bytes(stats->raw_bytes),
                               stats->new_chunk_count, stats->chunk_count));
  }
  if (!image.tag) {
    print_line(io, "The image has no tag: gc deletes it when its grace is over.");
  }
  return finish_output(io);
}

Result<std::unique_ptr<BuildSession>> BuildSession::open(std::shared_ptr<chunkstore::Store> store,
                                                         const PackOptions& options) {
  auto session = std::make_unique<BuildSession>();
  session->store_ = store;
  session->temp_directory_ =
      options.temp_directory.empty() ? default_temp_directory() : options.temp_directory;
  session->sort_memory_bytes_ = options.memory_max / kMemoryShares * kSortMemoryShare;
  chunkstore::PackBuilderOptions pack_options;
  pack_options.compression_level = options.level;
  pack_options.thread_count = options.job_count;
  VARVE_ASSIGN(session->packs_, chunkstore::PackBuilder::create(std::move(store), pack_options));
  return session;
}

chunkstore::LayerBuilderOptions BuildSession::builder_options() const {
  chunkstore::LayerBuilderOptions options;
  options.sort_memory_bytes = sort_memory_bytes_;
  options.temp_directory = temp_directory_;
  return options;
}

Status BuildSession::build_layer(chunkstore::EntrySource& source,
                                 chunkstore::LayerBuilderOptions options, Progress& progress,
                                 DirectoryIndex* index, uint32_t layer_number) {
  chunkstore::LayerBuilder builder(std::move(options), *packs_);
  CountingSink sink(builder, progress);
  if (index != nullptr) {
    RecordingSink recording(sink, *index, layer_number);
    VARVE_TRY(source.read_into(recording));
  } else {
    VARVE_TRY(source.read_into(sink));
  }
  VARVE_ASSIGN(chunkstore::BuiltLayer layer, builder.finish());
  add_layer(std::move(layer));
  return {};
}

Result<PublishedImage> BuildSession::publish(ImageParts base,
                                             const std::optional<chunkstore::RefName>& tag) {
  for (chunkstore::BuiltLayer& built : built_) {
    chunkstore::LayerParts parts{built.image_size, built.metadata_size, built.root_nid,
                                 std::move(built.chunks)};
    VARVE_ASSIGN(const chunkstore::PublishedLayer published, packs_->publish_layer(parts));
    base.layers.push_back(published.id);
    for (const auto& [id, path] : built.high_ids) base.ids.insert(id);
    new_layers_.push_back({published, built.counts, built.image_size, built.metadata_size});
  }
  VARVE_ASSIGN(base.layers, visible_layers(store_, std::move(base.layers)));
  VARVE_ASSIGN(const Digest id, publish_parts(*store_, packs_->lease(), base, tag));
  VARVE_TRY(packs_->lease().release());
  return PublishedImage{id, std::move(base.layers), tag};
}

}  // namespace varve::layer_pack
