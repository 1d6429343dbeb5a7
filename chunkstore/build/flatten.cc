#include "chunkstore/build/flatten.h"

#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "chunkstore/build/metadata_writer.h"
#include "chunkstore/build/node.h"
#include "chunkstore/build/path_key.h"
#include "chunkstore/build/resolved_tree.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/erofs/merged_tree.h"

namespace varve::chunkstore {
namespace {

using erofs::kBlockBytes;
using erofs::MergedNode;

class Flattener {
 public:
  Flattener(const std::vector<FlattenInput>& layers, const FlattenOptions& options)
      : layers_(layers),
        temp_directory_(temp_directory_or_default(options.temp_directory)),
        merged_(readers_of(layers)),
        tree_(options.sort_memory_bytes, temp_directory_),
        seen_directories_(layers.size()) {
    for (const FlattenInput& layer : layers) {
      block_bases_.push_back(data_blocks_);
      data_blocks_ += (layer.image_size - layer.metadata_size) / kBlockBytes;
    }
  }

  Result<BuiltLayer> run(ChunkSink& sink) {
    VARVE_TRY(walk());
    VARVE_TRY(tree_.finish(linked_count_));
    VARVE_ASSIGN(std::vector<LayerChunk> chunks, data_chunks());
    return write_metadata(tree_, nullptr, std::move(chunks), data_blocks_, counts_, temp_directory_,
                          sink);
  }

 private:
  struct Directory {
    std::string key;
    MergedNode node;
  };

  static std::vector<const erofs::Reader*> readers_of(const std::vector<FlattenInput>& layers) {
    std::vector<const erofs::Reader*> readers;
    for (const FlattenInput& layer : layers) readers.push_back(layer.reader);
    return readers;
  }

  Status walk();
  Status enter(const Directory& directory);
  Status add(const std::string& key, const MergedNode& node);
  Result<Node> node_of(const MergedNode& merged, const erofs::Inode& inode);
  Status place(const MergedNode& merged, const erofs::Inode& inode, Node& node) const;
  Result<uint32_t> place_range(uint32_t layer, uint64_t image_offset, uint64_t size) const;
  Result<std::vector<LayerChunk>> data_chunks() const;

  const std::vector<FlattenInput>& layers_;
  std::string temp_directory_;
  erofs::MergedTree merged_;
  ResolvedTree tree_;
  std::vector<uint64_t> block_bases_;  ///< Of each layer's data in the new data region.
  uint64_t data_blocks_ = 0;
  /// By layer and nid: directories that were listed. A second time means a loop.
  std::vector<std::unordered_set<uint64_t>> seen_directories_;
  /// Inodes with several names: layer and nid → sequence.
  std::vector<std::unordered_map<uint64_t, uint32_t>> linked_{layers_.size()};
  uint32_t linked_count_ = 0;
  LayerCounts counts_;
};

Status Flattener::walk() {
  VARVE_ASSIGN(MergedNode root, merged_.root());
  VARVE_TRY(add("", root));
  std::vector<Directory> waiting;
  waiting.push_back({"", std::move(root)});
  while (!waiting.empty()) {
    const Directory directory = std::move(waiting.back());
    waiting.pop_back();
    VARVE_TRY(enter(directory));
    Status status = merged_.read_directory(
        directory.node, [&](const std::string& name, MergedNode child) -> Status {
          std::string key = directory.key.empty() ? name : directory.key + '\0' + name;
          if (key.size() > erofs::kPathBytesMax)
            return fail(ErrorCode::kCorruption, "it is nested too deeply, or in itself");
          VARVE_TRY(add(key, child));
          if (child.is_directory()) waiting.push_back({std::move(key), std::move(child)});
          return {};
        });
    if (!status)
      return fail(std::move(status).error(), "merging " + quoted(key_to_path(directory.key)));
  }
  return {};
}

Status Flattener::enter(const Directory& directory) {
  for (const MergedNode::Part& part : directory.node.parts) {
    if (!seen_directories_[part.layer].insert(part.nid).second)
      return fail(ErrorCode::kCorruption, quoted(key_to_path(directory.key)) +
                                              ": the same directory inode has several names");
  }
  return {};
}

Status Flattener::add(const std::string& key, const MergedNode& merged) {
  VARVE_ASSIGN(const erofs::Inode inode, merged_.inode(merged));
  const erofs::FileType type = erofs::file_type_of_mode(inode.mode);
  const auto with_path = [&](Error error) {
    return fail(std::move(error), "merging " + quoted(key_to_path(key)));
  };
  if (static_cast<uint8_t>(type) != merged.type)
    return with_path(Error(ErrorCode::kCorruption, "directory entry and inode differ in type"));

  const bool is_linked = type != erofs::FileType::kDirectory && inode.nlink > 1;
  if (!is_linked) {
    auto node = node_of(merged, inode);
    if (!node) return with_path(std::move(node).error());
    return tree_.add_name(key, type, false, kNoIndex, &*node);
  }
  const auto [found, is_new] =
      linked_[merged.identity().layer].emplace(merged.identity().nid, linked_count_);
  if (is_new) {
    auto node = node_of(merged, inode);
    if (!node) return with_path(std::move(node).error());
    VARVE_TRY(tree_.add_linked_node(linked_count_++, *node));
  }
  return tree_.add_name(key, type, false, found->second, nullptr);
}

Result<Node> Flattener::node_of(const MergedNode& merged, const erofs::Inode& inode) {
  Entry entry;
  const auto type = entry_type_of_mode(inode.mode);
  VARVE_CHECK(type.has_value());  // The reader refuses inodes without a file type.
  entry.type = *type;
  entry.mode = inode.mode & 07777;
  entry.uid = inode.uid;
  entry.gid = inode.gid;
  entry.mtime_s = inode.mtime_s;
  entry.mtime_ns = inode.mtime_ns;
  entry.rdev_major = erofs::rdev_major(inode.rdev);
  entry.rdev_minor = erofs::rdev_minor(inode.rdev);
  VARVE_ASSIGN(entry.xattrs, merged_.xattrs(merged));
  if (S_ISLNK(inode.mode)) {
    VARVE_ASSIGN(entry.target, merged_.reader(merged).read_link(inode));
  }
  if (S_ISREG(inode.mode)) entry.size = inode.size;
  VARVE_ASSIGN(Node node, node_of_entry(entry));
  if (S_ISREG(inode.mode) && inode.size > 0) {
    counts_.file_bytes += inode.size;
    VARVE_TRY(place(merged, inode, node));
  }
  return node;
}

/// The new block of a range of a layer's data region.
Result<uint32_t> Flattener::place_range(uint32_t layer, uint64_t image_offset,
                                        uint64_t size) const {
  const FlattenInput& input = layers_[layer];
  if (image_offset < input.metadata_size || image_offset % kBlockBytes != 0 ||
      image_offset > input.image_size || size > input.image_size - image_offset)
    return fail(ErrorCode::kCorruption, "content at image offset " + std::to_string(image_offset) +
                                            " lies outside the data region");
  const uint64_t block = block_bases_[layer] + (image_offset - input.metadata_size) / kBlockBytes;
  if (block >= erofs::kNullBlock) return fail(ErrorCode::kUnsupported, "more than 16 TiB of data");
  return static_cast<uint32_t>(block);
}

Status Flattener::place(const MergedNode& merged, const erofs::Inode& inode, Node& node) const {
  const uint32_t layer = merged.identity().layer;
  if (inode.layout == erofs::Layout::kFlatInline)
    return fail(ErrorCode::kUnsupported, "a regular file with inline data");
  VARVE_ASSIGN(const auto extents, merged_.reader(merged).extents(inode, 0, inode.size));
  if (inode.layout == erofs::Layout::kFlatPlain) {
    VARVE_ASSIGN(const uint32_t block, place_range(layer, *extents.at(0).image_offset, inode.size));
    node.content = ContentKind::kPlacedPlain;
    node.placed_blocks = {block};
    return {};
  }
  node.content = ContentKind::kPlacedMap;
  node.content_index = inode.layout_word & erofs::kChunkFormatBitsMask;
  const uint64_t unit_bytes = erofs::map_chunk_bytes(inode.layout_word);
  for (const erofs::Extent& extent : extents) {
    for (uint64_t at = 0; at < extent.size; at += unit_bytes) {
      if (!extent.image_offset) {
        node.placed_blocks.push_back(erofs::kNullBlock);
        continue;
      }
      VARVE_ASSIGN(const uint32_t block, place_range(layer, *extent.image_offset + at,
                                                     std::min(unit_bytes, extent.size - at)));
      node.placed_blocks.push_back(block);
    }
  }
  return {};
}

Result<std::vector<LayerChunk>> Flattener::data_chunks() const {
  std::vector<LayerChunk> chunks;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const FlattenInput& layer = layers_[i];
    uint64_t offset = 0;
    for (const LayerChunk& chunk : layer.chunks) {
      if (offset >= layer.metadata_size) {
        chunks.push_back(chunk);
      } else if (chunk.raw_size > layer.metadata_size - offset) {
        return fail(ErrorCode::kCorruption,
                    "layer " + std::to_string(i) + ": its metadata region ends inside a chunk");
      }
      offset += chunk.raw_size;
    }
    if (offset != layer.image_size)
      return fail(ErrorCode::kCorruption,
                  "layer " + std::to_string(i) + ": its chunks do not make up its image");
  }
  return chunks;
}

}  // namespace

Result<BuiltLayer> flatten(const std::vector<FlattenInput>& layers, const FlattenOptions& options,
                           ChunkSink& sink) {
  if (layers.empty()) return fail(ErrorCode::kInvalidArgument, "no layers to flatten");
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].metadata_size > layers[i].image_size ||
        layers[i].metadata_size % kBlockBytes != 0 || layers[i].image_size % kBlockBytes != 0)
      return fail(ErrorCode::kCorruption, "layer " + std::to_string(i) + ": impossible sizes");
  }
  return Flattener(layers, options).run(sink);
}

}  // namespace varve::chunkstore
