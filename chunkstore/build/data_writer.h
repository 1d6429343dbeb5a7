#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/chunk_sink.h"
#include "chunkstore/build/external_sorter.h"
#include "chunkstore/build/file_cutter.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/build/node.h"
#include "chunkstore/build/read_ahead.h"
#include "chunkstore/build/resolved_tree.h"
#include "chunkstore/build/small_file_table.h"
#include "chunkstore/build/spool.h"
#include "chunkstore/build/tree_resolver.h"
#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

/// A file that is cut on its own.
struct LargeFile {
  CutFile cut;
  uint64_t first_chunk = 0;  ///< Among those that this writer submitted.
  uint32_t block = 0;        ///< First block, from the start of the data region.
};

/// Where the data region's files are. Blocks count from its start.
struct DataPlan {
  /// By rank: kNoIndex (nothing stored), a block, or kLargeFlag | index into large_files.
  std::vector<uint32_t> places;
  std::vector<LargeFile> large_files;
  uint64_t block_count = 0;
  std::vector<LayerChunk> chunks;  ///< In image order.

  static constexpr uint32_t kLargeFlag = 0x80000000;
};

/// All of a small file; kInvalidArgument when it has another length than `size`.
Result<Bytes> read_small_content(ContentStream& content, uint64_t size);

/// Puts the bytes of files into a sink and says where they lie (varve-erofs(5), "Data region"):
/// small files first, grouped, then large ones, each cut on its own, both in bytewise order of
/// their paths; files with the same bytes share blocks. Loop-local.
class DataWriter {
 public:
  DataWriter(const LayerBuilderOptions& options, size_t sort_memory_bytes,
             const std::string& temp_directory, ChunkSink& sink);

  /// Takes a small file's bytes as they arrive, to be kept until its place in the order is known.
  /// `sequence` is the entry's.
  Status add_small(std::string_view path, uint32_t sequence, ByteView content);
  /// Cuts a large file as it arrives; returns its index for Node::content_index.
  Result<uint32_t> add_large(uint64_t size, ContentStream& content);
  /// Registers the source of deferred files; returns its index for Node::content_index.
  uint32_t add_source(std::shared_ptr<const DeferredContent> source);

  /// Stores everything that `tree` still names. Call once, at the end.
  Result<DataPlan> write(const ResolvedTree& tree, const TreeResolver& resolver,
                         LayerCounts& counts);

 private:
  /// A file whose turn comes.
  struct File {
    std::string path;
    uint32_t rank = 0;
    uint32_t sequence = 0;
    uint64_t size = 0;
    ContentKind content = ContentKind::kNone;
    uint32_t content_index = 0;
    std::string content_key;
    std::shared_ptr<CutFile> cut;  ///< Filled by the reading job.
  };

  /// Returns the chunk's index in chunk_sizes_.
  Result<uint64_t> submit(Bytes chunk);
  Status order_files(const ResolvedTree& tree, LayerCounts& counts);
  static void encode(const File& file, Bytes& to);
  static File decode(ByteView key, ByteView value);
  Status collect_linked_contents(const ResolvedTree& tree, const TreeResolver& resolver);
  Status write_files(LayerCounts& counts);
  static Status read_large(const DeferredContent& source, const File& file, ReadQueue& queue);
  Status read_batch(const std::vector<File>& batch, ReadQueue& queue) const;
  Status look_ahead(SortedCursor& files);
  void flush_batch();
  Status write_small(const File& file, LayerCounts& counts);
  Status place_small(const File& file, ByteView content, const Digest& digest, LayerCounts& counts);
  Status flush_group();
  Status write_large(const File& file);
  Result<SmallContent> next_deferred_small();
  Result<Bytes> stored_small(const File& file);
  Status place_large_files(LayerCounts& counts);

  size_t reader_thread_count_;
  std::string temp_directory_;
  ChunkSink& sink_;
  ExternalSorter contents_;  ///< Small files from streams: path, NUL, sequence → bytes.
  ExternalSorter files_;     ///< In the order of the data region.
  std::vector<std::shared_ptr<const DeferredContent>> sources_;
  uint64_t first_ordinal_ = 0;         ///< Of the first chunk that was submitted.
  std::vector<uint32_t> chunk_sizes_;  ///< Of all submitted chunks.

  // During write():
  DataPlan plan_;
  const TreeResolver* resolver_ = nullptr;
  std::optional<SortedCursor> contents_cursor_;
  Spool linked_contents_;
  std::vector<std::pair<uint32_t, uint64_t>> linked_offsets_;  ///< Sequence → spool offset, sorted.
  std::unique_ptr<ReadAhead> read_ahead_;
  std::deque<File> pending_;
  std::vector<File> batch_;  ///< Deferred small files that no job has yet.
  uint64_t batch_bytes_ = 0;
  std::deque<SmallContent> arrived_;
  uint64_t small_file_count_ = 0;
  std::optional<SmallFileTable> small_files_;
  Bytes group_;
  uint64_t small_first_chunk_ = 0;
  uint64_t small_end_chunk_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> large_order_;  ///< Rank, index, in image order.
};

}  // namespace varve::chunkstore
