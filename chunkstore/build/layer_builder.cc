#include "chunkstore/build/layer_builder.h"

#include "chunkstore/build/data_writer.h"
#include "chunkstore/build/metadata_writer.h"
#include "chunkstore/build/node.h"
#include "chunkstore/build/resolved_tree.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/build/tree_resolver.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {
class LayerBuilder::State {
 public:
  State(LayerBuilderOptions options, ChunkSink& sink)
      : options_(std::move(options)),
        temp_directory_(temp_directory_or_default(options_.temp_directory)),
        sink_(sink),
        resolver_(options_.sort_memory_bytes / 4, temp_directory_, options_.base_directory),
        data_(options_, options_.sort_memory_bytes / 2, temp_directory_, sink) {}

  Status add(const Entry& entry) {
    VARVE_TRY(check_path(entry.path));
    switch (entry.type) {
      case EntryType::kHardLink:
        VARVE_TRY(check_path(entry.target));
        return ignore_sequence(resolver_.add_hard_link(entry.path, entry.target));
      case EntryType::kWhiteout:
        return ignore_sequence(resolver_.add_whiteout(entry.path));
      case EntryType::kOpaque:
        return ignore_sequence(resolver_.add_opaque(entry.path));
      case EntryType::kCharDevice:
        if (entry.rdev_major == 0 && entry.rdev_minor == 0) return add_device_zero(entry);
        break;
      default:
        break;
    }
    VARVE_ASSIGN(Node node, node_of_entry(entry));
    if (entry.type == EntryType::kRegular && entry.size > 0) return add_file(entry, node);
    if (entry.stream != nullptr) VARVE_TRY(read_small_content(*entry.stream, 0));
    return ignore_sequence(resolver_.add_node(entry.path, node));
  }

  Result<BuiltLayer> finish() {
    ResolvedTree tree(options_.sort_memory_bytes / 4, temp_directory_);
    VARVE_TRY(resolver_.resolve(tree));
    LayerCounts counts;
    VARVE_ASSIGN(DataPlan plan, data_.write(tree, resolver_, counts));
    std::vector<LayerChunk> chunks = std::move(plan.chunks);
    return write_metadata(tree, &plan, std::move(chunks), plan.block_count, counts, temp_directory_,
                          sink_);
  }

 private:
  static Status ignore_sequence(const Result<uint32_t>& sequence) {
    return sequence ? Status() : Status(tl::unexpected(sequence.error()));
  }

  Status add_device_zero(const Entry& entry) {
    if (options_.char_device_zero == CharDeviceZero::kWhiteout)
      return ignore_sequence(resolver_.add_whiteout(entry.path));
    return fail(ErrorCode::kInvalidArgument,
                "a character device 0:0 would hide this path of the layers below (a whiteout)");
  }

  Status add_file(const Entry& entry, Node& node) {
    if ((entry.stream != nullptr) == (entry.deferred != nullptr))
      return fail(ErrorCode::kInternal, "needs exactly one source of its content");
    if (entry.deferred != nullptr) {
      node.content = ContentKind::kDeferred;
      node.content_index = data_.add_source(entry.deferred);
      node.content_key = entry.deferred_key;
    } else if (entry.size >= kLargeFileBytesMin) {
      node.content = ContentKind::kLargeStream;
      VARVE_ASSIGN(node.content_index, data_.add_large(entry.size, *entry.stream));
    } else {
      node.content = ContentKind::kSmallStream;
      VARVE_ASSIGN(const Bytes content, read_small_content(*entry.stream, entry.size));
      VARVE_ASSIGN(const uint32_t sequence, resolver_.add_node(entry.path, node));
      return data_.add_small(entry.path, sequence, content);
    }
    return ignore_sequence(resolver_.add_node(entry.path, node));
  }

  LayerBuilderOptions options_;
  std::string temp_directory_;
  ChunkSink& sink_;
  TreeResolver resolver_;
  DataWriter data_;
};

LayerBuilder::LayerBuilder(LayerBuilderOptions options, ChunkSink& sink)
    : state_(std::make_unique<State>(std::move(options), sink)) {}
LayerBuilder::~LayerBuilder() = default;

Status LayerBuilder::add(Entry entry) {
  Status status = state_->add(entry);
  if (!status) {
    const std::string_view path = entry.path;
    const bool is_too_long = path.size() > erofs::kPathBytesMax;
    return fail(std::move(status).error(),
                "packing " + (is_too_long ? quoted(path.substr(0, erofs::kNameBytesMax)) + "…"
                                          : quoted(path)));
  }
  return {};
}

Result<BuiltLayer> LayerBuilder::finish() {
  return state_->finish();
}

}  // namespace varve::chunkstore
