#include "chunkstore/layer_pack/build_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/file_io.h"
#include "chunkstore/build/publish.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/erofs/large_ids.h"
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

std::string_view env_key(std::string_view assignment) {
  return assignment.substr(0, assignment.find('='));
}

chunkstore::Image image_of(const ImageParts& parts) {
  chunkstore::Image image;
  image.layers = parts.layers;
  image.config = parts.config;
  image.ids.assign(parts.ids.begin(), parts.ids.end());
  image.annotations = parts.annotations;
  return image;
}

/// The index of what the store holds, or nothing where it cannot be had: it saves work, and space
/// in the store, and no build depends on it.
std::unique_ptr<chunkstore::ChunkIndex> open_index(chunkstore::Store& store, const ToolIo& io) {
  auto index = chunkstore::ChunkIndex::open(store, chunkstore::default_index_directory(store));
  if (index) return std::move(*index);
  fmt::print(io.err, "layer-pack: building without an index of the store's chunks: {}\n",
             index.error().to_string());
  return nullptr;
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
                              std::string_view name, const std::string& temp_directory) {
  const chunkstore::ImageStore images(store);
  VARVE_ASSIGN(ResolvedName resolved, resolve_name(images, name));
  ImageParts parts;
  parts.layers = std::move(resolved.layers);
  if (resolved.image) {
    chunkstore::Image& image = resolved.image->image;
    parts.config = std::move(image.config);
    parts.ids.insert(image.ids.begin(), image.ids.end());
    parts.annotations = std::move(image.annotations);
    return parts;
  }
  VARVE_ASSIGN(const ImageView view, ImageView::open(store, parts.layers, temp_directory));
  VARVE_ASSIGN(parts.ids, chunkstore::erofs::find_large_ids(view.tree()));
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

Status check_temp_dir(const PackOptions& options) {
  if (options.temp_directory.empty()) return {};
  VARVE_TRY(in_context(open_unlinked_temp(options.temp_directory), "--temp-dir"));
  return {};
}

Result<std::optional<chunkstore::RefName>> parse_tag(const std::string& tag) {
  if (tag.empty()) return std::optional<chunkstore::RefName>();
  VARVE_ASSIGN(chunkstore::RefName ref, chunkstore::parse_ref(tag));
  return std::optional<chunkstore::RefName>(std::move(ref));
}

Result<std::vector<Digest>> visible_layers(const std::shared_ptr<chunkstore::Store>& store,
                                           std::vector<Digest> layers,
                                           const std::string& temp_directory) {
  VARVE_ASSIGN(const ImageView view, ImageView::open(store, layers, temp_directory));
  VARVE_ASSIGN(const auto root, view.tree().root());
  layers.erase(layers.begin(), layers.begin() + root.parts.back().layer);
  return layers;
}

Result<Digest> publish_parts(chunkstore::Store& store, chunkstore::Lease& lease,
                             const ImageParts& parts,
                             const std::optional<chunkstore::RefName>& tag) {
  VARVE_ASSIGN(const Digest id, chunkstore::publish_image(store, lease, image_of(parts)));
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
  print_line(io, fmt::format("image  {}  {} layer{}", image.id.hex(), image.layers.size(),
                             image.layers.size() == 1 ? "" : "s"));
  if (image.tag) print_line(io, "tag    " + image.tag->to_string());
  if (stats) {
    print_line(io, fmt::format("new    {} stored in {} chunks, of {} in {}",
                               human_bytes(stats->new_stored_bytes), stats->new_chunk_count,
                               human_bytes(stats->raw_bytes), stats->chunk_count));
  }
  if (!image.tag) {
    print_line(io, "The image has no tag: gc deletes it when its grace is over.");
  }
  return finish_output(io);
}

Result<std::unique_ptr<BuildSession>> BuildSession::open(std::shared_ptr<chunkstore::Store> store,
                                                         const PackOptions& options,
                                                         const ToolIo& io) {
  auto session = std::make_unique<BuildSession>();
  session->store_ = store;
  session->temp_directory_ = chunkstore::temp_directory_or_default(options.temp_directory);
  session->sort_memory_bytes_ = options.memory_max / kMemoryShares * kSortMemoryShare;
  chunkstore::PackBuilderOptions pack_options;
  pack_options.compression_level = options.level;
  pack_options.thread_count = options.job_count;
  auto index = open_index(*store, io);
  VARVE_ASSIGN(session->packs_, chunkstore::PackBuilder::create_with_index(
                                    std::move(store), pack_options, std::move(index)));
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

size_t BuildSession::first_visible() const {
  size_t first = built_.size() - 1;
  while (first > 0 && !built_[first].is_root_opaque) --first;
  return first;
}

Result<PublishedImage> BuildSession::publish(ImageParts image,
                                             const std::optional<chunkstore::RefName>& tag) {
  const size_t first = first_visible();
  if (built_[first].is_root_opaque) image.layers.clear();
  if (!image.layers.empty()) {
    VARVE_ASSIGN(image.layers, visible_layers(store_, std::move(image.layers), temp_directory_));
  }
  for (const chunkstore::BuiltLayer& built : built_) {
    for (const auto& [id, path] : built.high_ids) image.ids.insert(id);
  }
  // What the format refuses must show before a layer is published: the ids of the new ones do not
  // matter for that.
  ImageParts rehearsal = image;
  rehearsal.layers.resize(image.layers.size() + built_.size() - first);
  VARVE_TRY(chunkstore::encode_image(image_of(rehearsal)));
  for (size_t i = 0; i < built_.size(); ++i) {
    chunkstore::BuiltLayer& built = built_[i];
    chunkstore::LayerParts parts{built.image_size, built.metadata_size, built.root_nid,
                                 std::move(built.chunks)};
    VARVE_ASSIGN(const chunkstore::PublishedLayer published, packs_->publish_layer(parts));
    if (i >= first) image.layers.push_back(published.id);
    new_layers_.push_back({published, built.counts, built.image_size, built.metadata_size});
  }
  VARVE_ASSIGN(const Digest id, publish_parts(*store_, packs_->lease(), image, tag));
  VARVE_TRY(packs_->lease().release());
  return PublishedImage{id, std::move(image.layers), tag};
}

}  // namespace varve::layer_pack
