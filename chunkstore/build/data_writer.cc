#include "chunkstore/build/data_writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/check.h"
#include "chunkstore/build/path_key.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {
namespace {

// Groups of small files (varve-erofs(5)): they end after a file whose hash ends in kGroupEndMask's
// zeros once they hold kGroupBytesMin, and before they would pass kGroupBytesMax.
constexpr size_t kGroupBytesMin = 16 << 10;
constexpr size_t kGroupBytesMax = 64 << 10;
constexpr uint8_t kGroupEndMask = 3;

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kJobBytesMax = 4 << 20;
constexpr size_t kBatchFileCountMax = 32;
constexpr uint64_t kBatchBytesMax = 512 << 10;
constexpr size_t kPendingCountMax = 2048;
constexpr size_t kLinkedSpoolBytes = 8 << 20;

Status cut_stream(ContentStream& content, FileCutter& cutter) {
  Bytes buffer(kReadBytes);
  for (;;) {
    VARVE_ASSIGN(const uint64_t zeros, content.skip_hole());
    if (zeros > 0) {
      VARVE_TRY(cutter.write_zeros(zeros));
      continue;
    }
    VARVE_ASSIGN(const size_t size, content.read(buffer));
    if (size == 0) return {};
    VARVE_TRY(cutter.write(ByteView(buffer).first(size)));
  }
}

}  // namespace

Result<Bytes> read_small_content(ContentStream& content, uint64_t size) {
  // One byte more than expected, so that a file that has grown shows.
  Bytes bytes(size + 1);
  size_t filled = 0;
  while (filled < bytes.size()) {
    VARVE_ASSIGN(const size_t count, content.read(MutableByteView(bytes).subspan(filled)));
    if (count == 0) break;
    filled += count;
  }
  if (filled != size)
    return fail(ErrorCode::kInvalidArgument,
                "its content has another length than its " + std::to_string(size) + " bytes");
  bytes.resize(size);
  return bytes;
}

DataWriter::DataWriter(const LayerBuilderOptions& options, size_t sort_memory_bytes,
                       const std::string& temp_directory, ChunkSink& sink)
    : reader_thread_count_(std::max<size_t>(1, options.reader_thread_count)),
      temp_directory_(temp_directory),
      sink_(sink),
      contents_(sort_memory_bytes - sort_memory_bytes / 4, temp_directory),
      files_(sort_memory_bytes / 4, temp_directory),
      linked_contents_(kLinkedSpoolBytes, temp_directory) {}

Result<uint64_t> DataWriter::submit(Bytes chunk) {
  const auto size = static_cast<uint32_t>(chunk.size());
  VARVE_ASSIGN(const uint64_t ordinal, sink_.submit(std::move(chunk)));
  // The sink may have served other layers before this one.
  if (chunk_sizes_.empty()) first_ordinal_ = ordinal;
  VARVE_CHECK_OP(ordinal, ==, first_ordinal_ + chunk_sizes_.size());
  chunk_sizes_.push_back(size);
  return chunk_sizes_.size() - 1;
}

Status DataWriter::add_small(std::string_view path, uint32_t sequence, ByteView content) {
  std::string key(path);
  key.push_back('\0');
  append_be(key, sequence);
  return contents_.add(as_bytes(key), content);
}

Result<uint32_t> DataWriter::add_large(uint64_t size, ContentStream& content) {
  LargeFile file;
  FileCutter cutter(size, [&](Bytes chunk) -> Status {
    VARVE_ASSIGN(const uint64_t index, submit(std::move(chunk)));
    if (file.cut.chunk_count++ == 0) file.first_chunk = index;
    return {};
  });
  VARVE_TRY(cut_stream(content, cutter));
  VARVE_ASSIGN(file.cut, cutter.finish());
  plan_.large_files.push_back(std::move(file));
  return static_cast<uint32_t>(plan_.large_files.size() - 1);
}

uint32_t DataWriter::add_source(std::shared_ptr<const DeferredContent> source) {
  // Sources are few; the last one is nearly always the one.
  for (size_t i = sources_.size(); i-- > 0;) {
    if (sources_[i] == source) return static_cast<uint32_t>(i);
  }
  sources_.push_back(std::move(source));
  return static_cast<uint32_t>(sources_.size() - 1);
}

void DataWriter::encode(const File& file, Bytes& to) {
  append_le(to, file.rank);
  append_le(to, file.sequence);
  append_le(to, file.size);
  append_le(to, static_cast<uint32_t>(file.content));
  append_le(to, file.content_index);
  append(to, as_bytes(file.content_key));
}

DataWriter::File DataWriter::decode(ByteView key, ByteView value) {
  File file;
  file.path = as_text(key.subspan(1));
  file.rank = load_le<uint32_t>(value.data());
  file.sequence = load_le<uint32_t>(value.data() + 4);
  file.size = load_le<uint64_t>(value.data() + 8);
  file.content = static_cast<ContentKind>(load_le<uint32_t>(value.data() + 16));
  file.content_index = load_le<uint32_t>(value.data() + 20);
  file.content_key = as_text(value.subspan(24));
  return file;
}

Status DataWriter::order_files(const ResolvedTree& tree, LayerCounts& counts) {
  Bytes value;
  VARVE_ASSIGN(auto inodes, tree.inodes());
  for (; inodes.valid();) {
    const Node& node = inodes.node();
    if (S_ISREG(node.mode) && node.size > 0) {
      counts.file_bytes += node.size;
      File file;
      file.rank = inodes.name().rank;
      file.sequence = inodes.name().sequence;
      file.size = node.size;
      file.content = node.content;
      file.content_index = node.content_index;
      file.content_key = node.content_key;
      value.clear();
      encode(file, value);
      const char is_large = node.size >= kLargeFileBytesMin ? 1 : 0;
      small_file_count_ += is_large == 0 ? 1 : 0;
      const std::string key = std::string(1, is_large) + key_to_path(inodes.name().path_key);
      VARVE_TRY(files_.add(as_bytes(key), value));
    }
    VARVE_TRY(inodes.next());
  }
  return files_.finish();
}

/// Small files with several names may be needed in another place of the order than that of the
/// path they arrived under: they are taken out of the sorter beforehand.
Status DataWriter::collect_linked_contents(const ResolvedTree& tree, const TreeResolver& resolver) {
  if (tree.linked_count() == 0) return {};
  VARVE_ASSIGN(SortedCursor cursor, contents_.open());
  while (cursor.valid()) {
    const std::string_view key = as_text(cursor.key());
    const auto sequence = load_be<uint32_t>(key.substr(key.size() - 4));
    if (resolver.is_linked(sequence) && tree.first_rank(sequence) != kNoIndex) {
      linked_offsets_.emplace_back(sequence, linked_contents_.size());
      VARVE_TRY(linked_contents_.append(cursor.value()));
    }
    VARVE_TRY(cursor.next());
  }
  std::sort(linked_offsets_.begin(), linked_offsets_.end());
  return {};
}

Result<DataPlan> DataWriter::write(const ResolvedTree& tree, const TreeResolver& resolver,
                                   LayerCounts& counts) {
  resolver_ = &resolver;
  VARVE_TRY(contents_.finish());
  VARVE_TRY(order_files(tree, counts));
  VARVE_TRY(collect_linked_contents(tree, resolver));
  plan_.places.assign(tree.name_count(), kNoIndex);
  VARVE_TRY(write_files(counts));
  VARVE_TRY(place_large_files(counts));
  return std::move(plan_);
}

Status DataWriter::write_files(LayerCounts& counts) {
  VARVE_ASSIGN(contents_cursor_, contents_.open());
  VARVE_ASSIGN(SortedCursor files, files_.open());
  small_files_.emplace(temp_directory_);
  small_files_->reserve(small_file_count_);
  read_ahead_ = std::make_unique<ReadAhead>(reader_thread_count_, kJobBytesMax);
  small_first_chunk_ = chunk_sizes_.size();
  bool is_in_small_part = true;
  for (;;) {
    VARVE_TRY(look_ahead(files));
    if (pending_.empty()) break;
    const File file = std::move(pending_.front());
    pending_.pop_front();
    if (file.size < kLargeFileBytesMin) {
      VARVE_TRY(write_small(file, counts));
      continue;
    }
    if (is_in_small_part) {
      VARVE_TRY(flush_group());
      small_end_chunk_ = chunk_sizes_.size();
      is_in_small_part = false;
    }
    VARVE_TRY(write_large(file));
  }
  if (is_in_small_part) {
    VARVE_TRY(flush_group());
    small_end_chunk_ = chunk_sizes_.size();
  }
  read_ahead_.reset();
  small_files_.reset();
  contents_cursor_.reset();
  contents_ = ExternalSorter(0, temp_directory_);
  return {};
}

/// Runs on a reader thread: cuts a file while reading it.
Status DataWriter::read_large(const DeferredContent& source, const File& file, ReadQueue& queue) {
  VARVE_ASSIGN(const auto stream, source.open(file.content_key));
  FileCutter cutter(file.size, [&queue](Bytes chunk) -> Status {
    if (!queue.push({std::move(chunk), {}}))
      return fail(ErrorCode::kCancelled, "reading was cancelled");
    return {};
  });
  const Status status = cut_stream(*stream, cutter);
  auto cut = status ? cutter.finish() : Result<CutFile>(tl::unexpected(status.error()));
  if (!cut) return fail(std::move(cut).error(), "packing " + quoted(file.path));
  *file.cut = std::move(*cut);
  return {};
}

/// Runs on a reader thread: reads and hashes small files.
Status DataWriter::read_batch(const std::vector<File>& batch, ReadQueue& queue) const {
  ReadItem item;
  item.files.reserve(batch.size());
  std::vector<ByteView> contents;
  contents.reserve(batch.size());
  for (const File& file : batch) {
    VARVE_ASSIGN(const auto stream, sources_[file.content_index]->open(file.content_key));
    auto content = read_small_content(*stream, file.size);
    if (!content) return fail(std::move(content).error(), "packing " + quoted(file.path));
    item.files.push_back({std::move(*content), {}});
    contents.emplace_back(item.files.back().bytes);
  }
  std::vector<Digest> digests(contents.size());
  sha256_all(contents, digests);
  for (size_t i = 0; i < digests.size(); ++i) item.files[i].digest = digests[i];
  queue.push(std::move(item));
  return {};
}

/// Queues reading jobs for the files whose turn comes next.
Status DataWriter::look_ahead(SortedCursor& files) {
  while (files.valid() && !read_ahead_->is_full() && pending_.size() < kPendingCountMax) {
    File file = decode(files.key(), files.value());
    VARVE_TRY(files.next());
    if (file.content == ContentKind::kDeferred) {
      if (file.size < kLargeFileBytesMin) {
        batch_bytes_ += file.size;
        batch_.push_back(file);
        if (batch_.size() >= kBatchFileCountMax || batch_bytes_ >= kBatchBytesMax) flush_batch();
      } else {
        flush_batch();
        file.cut = std::make_shared<CutFile>();
        read_ahead_->push([file, source = sources_[file.content_index]](ReadQueue& queue) {
          return read_large(*source, file, queue);
        });
      }
    }
    pending_.push_back(std::move(file));
  }
  return {};
}

void DataWriter::flush_batch() {
  if (batch_.empty()) return;
  read_ahead_->push(
      [batch = std::move(batch_), this](ReadQueue& queue) { return read_batch(batch, queue); });
  batch_.clear();
  batch_bytes_ = 0;
}

Result<SmallContent> DataWriter::next_deferred_small() {
  if (arrived_.empty()) {
    if (read_ahead_->is_empty()) flush_batch();
    VARVE_ASSIGN(auto item, read_ahead_->pop());
    VARVE_CHECK(item.has_value());
    for (SmallContent& content : item->files) arrived_.push_back(std::move(content));
    VARVE_ASSIGN(const auto end, read_ahead_->pop());
    VARVE_CHECK(!end.has_value());
  }
  SmallContent content = std::move(arrived_.front());
  arrived_.pop_front();
  return content;
}

Result<Bytes> DataWriter::stored_small(const File& file) {
  Bytes content(file.size);
  if (resolver_->is_linked(file.sequence)) {
    const auto found = std::lower_bound(linked_offsets_.begin(), linked_offsets_.end(),
                                        std::pair<uint32_t, uint64_t>(file.sequence, 0));
    VARVE_CHECK(found != linked_offsets_.end() && found->first == file.sequence);
    VARVE_TRY(linked_contents_.read(found->second, content));
    return content;
  }
  std::string key = file.path;
  key.push_back('\0');
  append_be(key, file.sequence);
  // Contents that come before were replaced by later entries, or have several names.
  while (contents_cursor_->valid() && as_text(contents_cursor_->key()) < key)
    VARVE_TRY(contents_cursor_->next());
  VARVE_CHECK(contents_cursor_->valid() && as_text(contents_cursor_->key()) == key);
  const ByteView value = contents_cursor_->value();
  content.assign(value.begin(), value.end());
  return content;
}

Status DataWriter::write_small(const File& file, LayerCounts& counts) {
  if (file.content == ContentKind::kDeferred) {
    VARVE_ASSIGN(const SmallContent content, next_deferred_small());
    return place_small(file, content.bytes, content.digest, counts);
  }
  VARVE_ASSIGN(const Bytes content, stored_small(file));
  return place_small(file, content, sha256(content), counts);
}

Status DataWriter::place_small(const File& file, ByteView content, const Digest& digest,
                               LayerCounts& counts) {
  VARVE_CHECK_OP(content.size(), ==, file.size);
  VARVE_ASSIGN(const auto twin, small_files_->find(digest));
  if (twin) {
    plan_.places[file.rank] = *twin;
    ++counts.shared_files;
    return {};
  }
  const size_t padded = align_up(content.size(), erofs::kBlockBytes);
  if (!group_.empty() && group_.size() + padded > kGroupBytesMax) VARVE_TRY(flush_group());
  const uint64_t block = plan_.block_count;
  if (block >= DataPlan::kLargeFlag)
    return fail(ErrorCode::kUnsupported, "more than 8 TiB of small files");
  plan_.places[file.rank] = static_cast<uint32_t>(block);
  VARVE_TRY(small_files_->insert(digest, static_cast<uint32_t>(block)));
  append(group_, content);
  group_.resize(align_up(group_.size(), erofs::kBlockBytes));
  plan_.block_count += padded / erofs::kBlockBytes;
  if (group_.size() >= kGroupBytesMin && (digest.bytes[0] & kGroupEndMask) == 0)
    VARVE_TRY(flush_group());
  return {};
}

Status DataWriter::flush_group() {
  if (group_.empty()) return {};
  VARVE_TRY(submit(std::move(group_)));
  group_ = Bytes();
  group_.reserve(kGroupBytesMax);
  return {};
}

Status DataWriter::write_large(const File& file) {
  if (file.content == ContentKind::kLargeStream) {
    large_order_.emplace_back(file.rank, file.content_index);
    return {};
  }
  LargeFile large;
  large.first_chunk = chunk_sizes_.size();
  for (;;) {
    VARVE_ASSIGN(auto item, read_ahead_->pop());
    if (!item) break;
    VARVE_TRY(submit(std::move(item->chunk)));
  }
  large.cut = std::move(*file.cut);
  VARVE_CHECK_OP(large.first_chunk + large.cut.chunk_count, ==, chunk_sizes_.size());
  large_order_.emplace_back(file.rank, static_cast<uint32_t>(plan_.large_files.size()));
  plan_.large_files.push_back(std::move(large));
  return {};
}

Status DataWriter::place_large_files(LayerCounts& counts) {
  VARVE_TRY(sink_.drain());
  plan_.chunks.reserve(chunk_sizes_.size());
  const auto add_chunks = [&](uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; ++i)
      plan_.chunks.push_back({sink_.id(first_ordinal_ + i), chunk_sizes_[i]});
  };
  add_chunks(small_first_chunk_, small_end_chunk_);
  std::unordered_map<Digest, uint32_t, DigestHash> known;
  for (const auto& [rank, index] : large_order_) {
    LargeFile& file = plan_.large_files[index];
    // Equal sizes, holes and chunks are equal bytes.
    Bytes identity;
    append_le(identity, file.cut.size);
    append_le(identity, uint64_t{file.cut.holes.size()});
    for (const UnitRun& run : file.cut.holes) append_le(identity, run);
    for (uint64_t i = 0; i < file.cut.chunk_count; ++i)
      append(identity, sink_.id(first_ordinal_ + file.first_chunk + i).view());
    for (const UnitRun& run : file.cut.holes)
      counts.hole_bytes += run.count * hole_unit_bytes(file.cut.size);
    plan_.places[rank] = DataPlan::kLargeFlag | index;
    const auto [twin, is_new] = known.emplace(sha256(identity), file.block);
    if (!is_new) {
      file.block = twin->second;
      ++counts.shared_files;
      continue;
    }
    if (plan_.block_count > UINT32_MAX)
      return fail(ErrorCode::kUnsupported, "more than 16 TiB of data");
    file.block = static_cast<uint32_t>(plan_.block_count);
    twin->second = file.block;
    plan_.block_count += file.cut.stored_bytes / erofs::kBlockBytes;
    add_chunks(file.first_chunk, file.first_chunk + file.cut.chunk_count);
  }
  return {};
}

}  // namespace varve::chunkstore
