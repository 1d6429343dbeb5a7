#include "chunkstore/read/layer_map.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_io.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/read/internal/page_spool.h"

// The spool, an unlinked file:
//   leaf table   as in the layer object
//   leaf pages   for each leaf 1,024 × u32 (end of the chunk, from the leaf's first byte), then
//                1,024 × u8[32] (id)
//   placements   one after another as refreshes bring them: pack table, then a record of 80 bytes a
//                chunk (id, pack, entry as in the placement object), so that one read finds all of
//                it; those that are no longer in force are punched out
namespace varve::chunkstore {
namespace {

// A header part that is not larger arrives with the first read.
constexpr size_t kFirstReadBytes = 16 << 10;
constexpr size_t kTableReadBytes = 240 << 10;  // a multiple of 40 and of 32
constexpr size_t kSampleCountMax = 512;
constexpr size_t kSpoolLeafBytes = kLeafEntryCountMax * (4 + 32);
constexpr size_t kRecordBytes = 32 + 32 + kPlacementEntryBytes;
// Locations remembered for readers that come back to the same chunk.
constexpr size_t kRecentCount = 16;
// Leaf pages are numbered from 0, placement pages from here, in PageFlights.
constexpr uint64_t kPlacementPageBase = uint64_t{1} << 32;

static_assert(kLeafEntryCountMax == kPlacementPageEntryCount);
static_assert(kTableReadBytes % kLeafTableEntryBytes == 0 && kTableReadBytes % 32 == 0);

/// A placement in force: its header, and where its parts lie in the spool. Immutable but for
/// `bits`.
struct PlacementInForce {
  PlacementInForce(int fd, const Digest& name, const PlacementHeader& placement_header,
                   uint64_t offset)
      : spool_fd(fd),
        digest(name),
        header(placement_header),
        spool_offset(offset),
        bits(placement_header.page_count()) {}
  ~PlacementInForce() {
    // Where holes cannot be punched the spool is a little larger.
    (void)::fallocate(spool_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(spool_offset), static_cast<off_t>(spool_size()));
  }
  PlacementInForce(const PlacementInForce&) = delete;
  PlacementInForce& operator=(const PlacementInForce&) = delete;

  uint64_t records_offset() const { return spool_offset + uint64_t{header.pack_count} * 32; }
  uint64_t spool_size() const { return spool_size_of(header); }
  static uint64_t spool_size_of(const PlacementHeader& header) {
    return uint64_t{header.pack_count} * 32 + header.chunk_count * kRecordBytes;
  }

  const int spool_fd;
  const Digest digest;
  const PlacementHeader header;
  const uint64_t spool_offset;
  PageBits bits;
};

/// A page in the spool, or in memory where the spool could not take it.
struct Page {
  uint64_t spool_offset = 0;
  Bytes memory;
};

class LayerMapImpl : public LayerMap {
 public:
  LayerMapImpl(std::shared_ptr<Store> store, const Digest& layer, UniqueFd spool,
               std::string spool_directory)
      : store_(std::move(store)),
        layer_(layer),
        spool_(std::move(spool)),
        spool_directory_(std::move(spool_directory)),
        leaf_bits_(0) {}

  Status read_header(Deadline deadline);
  Result<bool> refresh_placement(Deadline deadline) override;

  const Digest& layer() const override { return layer_; }
  const LayerHeader& header() const override { return header_; }
  Result<ChunkLocation> locate(uint64_t offset, Deadline deadline) override;
  Result<ChunkLocation> chunk(uint64_t index, Deadline deadline) override;
  std::optional<ChunkLocation> locate_local(uint64_t offset) override;
  uint64_t stored_bytes() const override { return placement()->header.stored_bytes; }
  size_t memory_bytes() const override;

 private:
  struct LeafPosition {
    uint32_t leaf = 0;
    uint64_t first_offset = 0;
  };

  Status read_leaf_table(ByteView first_read, Deadline deadline);
  Status add_leaf_table_piece(ByteView piece, uint32_t first, uint64_t& previous_offset);
  Result<std::shared_ptr<PlacementInForce>> load_placement(const Digest& digest, Deadline deadline);
  std::shared_ptr<PlacementInForce> placement() const {
    std::lock_guard lock(mutex_);
    return placement_;
  }

  Result<LayerLeaf> leaf_entry(uint32_t leaf) const;
  Result<LeafPosition> leaf_of_offset(uint64_t offset) const;
  Result<Page> leaf_page(uint32_t leaf, Deadline deadline);
  Result<Bytes> fetch_leaf(uint32_t leaf, Deadline deadline) const;
  Result<Page> placement_page(PlacementInForce& in_force, const Page& leaf, uint32_t page,
                              Deadline deadline);
  Result<Bytes> fetch_records(const PlacementInForce& in_force, const Page& leaf, uint32_t page,
                              Deadline deadline) const;
  /// The chunk of `position.leaf` that covers `offset`, or that is the leaf's `entry`-th.
  Result<ChunkLocation> read_location(const LeafPosition& position, std::optional<uint64_t> offset,
                                      uint32_t entry, Deadline deadline);
  Status read_record(PlacementInForce& in_force, const Page& leaf, ChunkLocation& location,
                     Deadline deadline);
  std::optional<ChunkLocation> find_recent(uint64_t offset) const;
  void remember(const std::shared_ptr<PlacementInForce>& in_force, const ChunkLocation& location);
  Status read_page(const Page& page, uint64_t offset, MutableByteView to) const;
  /// Writes what has to be there. Errors name the directory.
  Status spool(uint64_t offset, ByteView bytes) const;
  Page keep(PageBits& bits, uint32_t page, uint64_t spool_offset, Bytes bytes) const;

  uint64_t leaf_pages_offset() const {
    return uint64_t{header_.leaf_count()} * kLeafTableEntryBytes;
  }
  std::string context() const { return "layer " + layer_.hex(); }

  const std::shared_ptr<Store> store_;
  const Digest layer_;
  const UniqueFd spool_;
  const std::string spool_directory_;  // for messages
  LayerHeader header_;
  // first_offset of every sample_step_-th leaf.
  std::vector<uint64_t> samples_;
  uint32_t sample_step_ = 1;
  PageBits leaf_bits_;
  PageFlights flights_;
  mutable std::mutex mutex_;  // for what follows
  std::shared_ptr<PlacementInForce> placement_;
  std::array<ChunkLocation, kRecentCount> recent_;  // of the placement in force; raw_size 0: none
  size_t next_recent_ = 0;
  uint64_t spool_end_ = 0;
};

Status LayerMapImpl::read_header(Deadline deadline) {
  const std::string key = layer_key(layer_);
  VARVE_ASSIGN(const ObjectInfo info, store_->stat(key, deadline));
  Bytes first_read(std::min<uint64_t>(info.size, kFirstReadBytes));
  VARVE_TRY(store_->get_range(key, 0, first_read, deadline));
  VARVE_ASSIGN(header_, parse_layer_header(first_read));
  if (info.size != header_.object_size()) {
    return fail(ErrorCode::kCorruption,
                fmt::format("object has {} bytes instead of {}", info.size, header_.object_size()));
  }
  leaf_bits_ = PageBits(header_.leaf_count());
  sample_step_ =
      static_cast<uint32_t>((header_.leaf_count() + kSampleCountMax - 1) / kSampleCountMax);
  samples_.reserve((header_.leaf_count() + sample_step_ - 1) / sample_step_);
  spool_end_ = leaf_pages_offset() + uint64_t{header_.leaf_count()} * kSpoolLeafBytes;
  return read_leaf_table(first_read, deadline);
}

Status LayerMapImpl::read_leaf_table(ByteView first_read, Deadline deadline) {
  const uint64_t header_size = header_.header_size();
  const size_t in_first_read =
      std::min<uint64_t>(first_read.size(), header_size) - kLayerHeaderFixedBytes;
  Sha256 hash;
  hash.update(first_read.first(kLayerHeaderFixedBytes));
  uint64_t previous_offset = 0;
  uint32_t leaf = 0;
  Bytes piece(
      first_read.begin() + kLayerHeaderFixedBytes,
      first_read.begin() + kLayerHeaderFixedBytes +
          static_cast<ptrdiff_t>(in_first_read / kLeafTableEntryBytes * kLeafTableEntryBytes));
  for (;;) {
    hash.update(piece);
    VARVE_TRY(add_leaf_table_piece(piece, leaf, previous_offset));
    leaf += static_cast<uint32_t>(piece.size() / kLeafTableEntryBytes);
    const uint64_t at = kLayerHeaderFixedBytes + uint64_t{leaf} * kLeafTableEntryBytes;
    if (at == header_size) break;
    piece.resize(std::min<uint64_t>(kTableReadBytes, header_size - at));
    VARVE_TRY(store_->get_range(layer_key(layer_), at, piece, deadline));
  }
  const Digest found = hash.finish();
  if (found != layer_) {
    return fail(ErrorCode::kCorruption, "header has the hash " + found.hex());
  }
  return {};
}

Status LayerMapImpl::add_leaf_table_piece(ByteView piece, uint32_t first,
                                          uint64_t& previous_offset) {
  VARVE_ASSIGN(const auto leaves, parse_leaf_table(piece, header_, first, previous_offset));
  for (size_t i = 0; i < leaves.size(); ++i) {
    if ((first + i) % sample_step_ == 0) samples_.push_back(leaves[i].first_offset);
  }
  if (!leaves.empty()) previous_offset = leaves.back().first_offset;
  // The table itself has to fit: without it nothing can be verified.
  return spool(uint64_t{first} * kLeafTableEntryBytes, piece);
}

Result<bool> LayerMapImpl::refresh_placement(Deadline deadline) {
  const auto refresh = [&]() -> Result<bool> {
    VARVE_ASSIGN(const Bytes pointer,
                 store_->get(current_placement_key(layer_), kPointerBytes, deadline));
    VARVE_ASSIGN(const Digest digest, parse_pointer(pointer));
    const auto old = placement();
    if (old && old->digest == digest) return false;
    VARVE_ASSIGN(auto loaded, load_placement(digest, deadline));
    std::lock_guard lock(mutex_);
    placement_ = std::move(loaded);
    recent_.fill({});
    return true;
  };
  auto changed = refresh();
  if (!changed) return fail(std::move(changed).error(), "placement of " + context());
  return changed;
}

Result<std::shared_ptr<PlacementInForce>> LayerMapImpl::load_placement(const Digest& digest,
                                                                       Deadline deadline) {
  const std::string key = placement_key(layer_, digest);
  VARVE_ASSIGN(const ObjectInfo info, store_->stat(key, deadline));
  Bytes piece(std::min<uint64_t>(info.size, kFirstReadBytes));
  VARVE_TRY(store_->get_range(key, 0, piece, deadline));
  VARVE_ASSIGN(const PlacementHeader placement_header,
               parse_placement_header(piece, layer_, header_.chunk_count));
  if (info.size != placement_header.object_size()) {
    return fail(ErrorCode::kCorruption, fmt::format("{} has {} bytes instead of {}", quoted(key),
                                                    info.size, placement_header.object_size()));
  }
  uint64_t spool_offset;
  {
    std::lock_guard lock(mutex_);
    spool_offset = spool_end_;
    spool_end_ += PlacementInForce::spool_size_of(placement_header);
  }
  auto loaded =
      std::make_shared<PlacementInForce>(spool_.get(), digest, placement_header, spool_offset);
  // The pack table: what came with the first read, then the rest in pieces.
  const uint64_t header_size = placement_header.header_size();
  piece.resize(std::min<uint64_t>(piece.size(), header_size));
  piece.erase(piece.begin(), piece.begin() + kPlacementFixedBytes);
  uint64_t at = kPlacementFixedBytes;
  for (;;) {
    VARVE_TRY(spool(spool_offset + at - kPlacementFixedBytes, piece));
    at += piece.size();
    if (at == header_size) break;
    piece.resize(std::min<uint64_t>(kTableReadBytes, header_size - at));
    VARVE_TRY(store_->get_range(key, at, piece, deadline));
  }
  return loaded;
}

Result<LayerLeaf> LayerMapImpl::leaf_entry(uint32_t leaf) const {
  uint8_t bytes[kLeafTableEntryBytes];
  VARVE_TRY(pread_exact(spool_.get(), uint64_t{leaf} * kLeafTableEntryBytes, bytes));
  LayerLeaf entry;
  std::copy_n(bytes, 32, entry.digest.bytes.begin());
  entry.first_offset = load_le<uint64_t>(bytes + 32);
  return entry;
}

Result<LayerMapImpl::LeafPosition> LayerMapImpl::leaf_of_offset(uint64_t offset) const {
  const size_t sample = static_cast<size_t>(
      std::upper_bound(samples_.begin(), samples_.end(), offset) - samples_.begin() - 1);
  LeafPosition position{static_cast<uint32_t>(sample) * sample_step_, samples_[sample]};
  if (sample_step_ == 1) return position;
  const uint32_t first = position.leaf;
  const uint32_t count = std::min(sample_step_, header_.leaf_count() - first);
  Bytes run(size_t{count} * kLeafTableEntryBytes);
  VARVE_TRY(pread_exact(spool_.get(), uint64_t{first} * kLeafTableEntryBytes, run));
  for (uint32_t i = 1; i < count; ++i) {
    const auto first_offset = load_le<uint64_t>(run.data() + i * kLeafTableEntryBytes + 32);
    if (first_offset > offset) break;
    position = {first + i, first_offset};
  }
  return position;
}

Status LayerMapImpl::spool(uint64_t offset, ByteView bytes) const {
  if (auto status = pwrite_all(spool_.get(), offset, bytes); !status) {
    return fail(std::move(status).error(),
                "writing a temporary file in " + quoted(spool_directory_));
  }
  return {};
}

Page LayerMapImpl::keep(PageBits& bits, uint32_t page, uint64_t spool_offset, Bytes bytes) const {
  if (pwrite_all(spool_.get(), spool_offset, bytes)) {
    bits.set(page);
    return {spool_offset, {}};
  }
  // The spool is full: this reader is served from memory, the next one fetches again.
  return {spool_offset, std::move(bytes)};
}

Result<Bytes> LayerMapImpl::fetch_leaf(uint32_t leaf, Deadline deadline) const {
  VARVE_ASSIGN(const LayerLeaf entry, leaf_entry(leaf));
  uint64_t end_offset = header_.image_size;
  if (leaf + 1 < header_.leaf_count()) {
    VARVE_ASSIGN(const LayerLeaf next, leaf_entry(leaf + 1));
    end_offset = next.first_offset;
  }
  Bytes page(size_t{header_.leaf_entry_count(leaf)} * kLeafEntryBytes);
  VARVE_TRY(store_->get_range(layer_key(layer_), header_.leaf_page_offset(leaf), page, deadline));
  VARVE_ASSIGN(const auto chunks, parse_leaf(page, entry, end_offset - entry.first_offset));
  Bytes spool_page(kSpoolLeafBytes);
  uint32_t end = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    end += chunks[i].raw_size;
    store_le<uint32_t>(spool_page.data() + i * 4, end);
    std::ranges::copy(chunks[i].id.bytes, spool_page.data() + kLeafEntryCountMax * 4 + i * 32);
  }
  return spool_page;
}

Result<Page> LayerMapImpl::leaf_page(uint32_t leaf, Deadline deadline) {
  const uint64_t spool_offset = leaf_pages_offset() + uint64_t{leaf} * kSpoolLeafBytes;
  if (leaf_bits_.test(leaf)) return Page{spool_offset, {}};
  VARVE_ASSIGN(const auto flight, flights_.board(leaf, deadline));
  if (leaf_bits_.test(leaf)) return Page{spool_offset, {}};
  auto bytes = fetch_leaf(leaf, deadline);
  if (!bytes) return fail(std::move(bytes).error(), fmt::format("leaf {}", leaf));
  return keep(leaf_bits_, leaf, spool_offset, std::move(*bytes));
}

Result<Page> LayerMapImpl::placement_page(PlacementInForce& in_force, const Page& leaf,
                                          uint32_t page, Deadline deadline) {
  const uint64_t spool_offset =
      in_force.records_offset() + uint64_t{page} * kPlacementPageEntryCount * kRecordBytes;
  if (in_force.bits.test(page)) return Page{spool_offset, {}};
  VARVE_ASSIGN(const auto flight, flights_.board(kPlacementPageBase + page, deadline));
  if (in_force.bits.test(page)) return Page{spool_offset, {}};
  VARVE_ASSIGN(Bytes records, fetch_records(in_force, leaf, page, deadline));
  return keep(in_force.bits, page, spool_offset, std::move(records));
}

Result<Bytes> LayerMapImpl::fetch_records(const PlacementInForce& in_force, const Page& leaf,
                                          uint32_t page, Deadline deadline) const {
  const size_t count = header_.leaf_entry_count(page);
  Bytes entries(count * kPlacementEntryBytes);
  VARVE_TRY(store_->get_range(
      placement_key(layer_, in_force.digest),
      in_force.header.header_size() + uint64_t{page} * kPlacementPageBytesMax, entries, deadline));
  Bytes ids(count * 32);
  VARVE_TRY(read_page(leaf, kLeafEntryCountMax * 4, ids));
  Bytes records(count * kRecordBytes);
  Digest pack;
  uint32_t pack_number = UINT32_MAX;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const entry = entries.data() + i * kPlacementEntryBytes;
    uint8_t* const record = records.data() + i * kRecordBytes;
    const auto number = load_le<uint32_t>(entry);
    // An entry outside the table is found out when it is looked up: the others are fine.
    if (number != pack_number && number < in_force.header.pack_count) {
      VARVE_TRY(
          pread_exact(spool_.get(), in_force.spool_offset + uint64_t{number} * 32, pack.bytes));
      pack_number = number;
    }
    std::copy_n(ids.begin() + static_cast<ptrdiff_t>(i * 32), 32, record);
    std::ranges::copy(pack.bytes, record + 32);
    std::copy_n(entry, kPlacementEntryBytes, record + 64);
  }
  return records;
}

Status LayerMapImpl::read_page(const Page& page, uint64_t offset, MutableByteView to) const {
  if (page.memory.empty()) return pread_exact(spool_.get(), page.spool_offset + offset, to);
  VARVE_CHECK_OP(offset + to.size(), <=, page.memory.size());
  std::copy_n(page.memory.begin() + static_cast<ptrdiff_t>(offset), to.size(), to.begin());
  return {};
}

Result<ChunkLocation> LayerMapImpl::read_location(const LeafPosition& position,
                                                  std::optional<uint64_t> offset, uint32_t entry,
                                                  Deadline deadline) {
  VARVE_ASSIGN(const Page page, leaf_page(position.leaf, deadline));
  const uint32_t entry_count = header_.leaf_entry_count(position.leaf);
  uint32_t ends[kLeafEntryCountMax];
  VARVE_TRY(read_page(page, 0, {reinterpret_cast<uint8_t*>(ends), size_t{entry_count} * 4}));
  if (offset) {
    entry = static_cast<uint32_t>(
        std::upper_bound(ends, ends + entry_count, *offset - position.first_offset) - ends);
    VARVE_CHECK_OP(entry, <, entry_count);
  }
  const uint32_t begin = entry == 0 ? 0 : ends[entry - 1];
  ChunkLocation location;
  location.index = uint64_t{position.leaf} * kLeafEntryCountMax + entry;
  location.image_offset = position.first_offset + begin;
  location.raw_size = ends[entry] - begin;
  const auto in_force = placement();
  VARVE_TRY(read_record(*in_force, page, location, deadline));
  remember(in_force, location);
  return location;
}

Status LayerMapImpl::read_record(PlacementInForce& in_force, const Page& leaf,
                                 ChunkLocation& location, Deadline deadline) {
  const auto page_number = static_cast<uint32_t>(location.index / kPlacementPageEntryCount);
  VARVE_ASSIGN(const Page page, placement_page(in_force, leaf, page_number, deadline));
  uint8_t record[kRecordBytes];
  VARVE_TRY(read_page(page, location.index % kPlacementPageEntryCount * kRecordBytes, record));
  auto entry = parse_placement_entry(ByteView(record).subspan(64), in_force.header.pack_count,
                                     location.raw_size);
  if (!entry) {
    return fail(std::move(entry).error(),
                fmt::format("placement {} of chunk {}", in_force.digest.hex(), location.index));
  }
  std::copy_n(record, 32, location.id.bytes.begin());
  std::copy_n(record + 32, 32, location.pack.bytes.begin());
  location.pack_offset = entry->offset;
  location.stored_size = entry->stored_size;
  location.is_raw = entry->is_raw;
  return {};
}

std::optional<ChunkLocation> LayerMapImpl::find_recent(uint64_t offset) const {
  std::lock_guard lock(mutex_);
  for (const ChunkLocation& location : recent_) {
    if (offset - location.image_offset < location.raw_size) return location;
  }
  return std::nullopt;
}

void LayerMapImpl::remember(const std::shared_ptr<PlacementInForce>& in_force,
                            const ChunkLocation& location) {
  std::lock_guard lock(mutex_);
  // Another placement may have come into force while this location was read.
  if (in_force != placement_) return;
  recent_[next_recent_] = location;
  next_recent_ = (next_recent_ + 1) % kRecentCount;
}

Result<ChunkLocation> LayerMapImpl::locate(uint64_t offset, Deadline deadline) {
  if (offset >= header_.image_size) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: offset {} is past the end at {}",
                                                         context(), offset, header_.image_size));
  }
  if (auto recent = find_recent(offset)) return *recent;
  auto position = leaf_of_offset(offset);
  if (!position) return fail(std::move(position).error(), context());
  auto location = read_location(*position, offset, 0, deadline);
  if (!location) return fail(std::move(location).error(), context());
  return location;
}

Result<ChunkLocation> LayerMapImpl::chunk(uint64_t index, Deadline deadline) {
  if (index >= header_.chunk_count) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: no chunk {}, there are {}", context(),
                                                         index, header_.chunk_count));
  }
  const auto leaf = static_cast<uint32_t>(index / kLeafEntryCountMax);
  auto entry = leaf_entry(leaf);
  if (!entry) return fail(std::move(entry).error(), context());
  auto location = read_location({leaf, entry->first_offset}, std::nullopt,
                                static_cast<uint32_t>(index % kLeafEntryCountMax), deadline);
  if (!location) return fail(std::move(location).error(), context());
  return location;
}

std::optional<ChunkLocation> LayerMapImpl::locate_local(uint64_t offset) {
  if (offset >= header_.image_size) return std::nullopt;
  if (auto recent = find_recent(offset)) return recent;
  const auto position = leaf_of_offset(offset);
  if (!position || !leaf_bits_.test(position->leaf) || !placement()->bits.test(position->leaf)) {
    return std::nullopt;
  }
  // Bits are never taken back; a placement that changes meanwhile costs one fetch at most, which a
  // deadline in the past refuses.
  auto location = read_location(*position, offset, 0, Deadline::min());
  if (!location) return std::nullopt;
  return *location;
}

size_t LayerMapImpl::memory_bytes() const {
  return sizeof(*this) + samples_.capacity() * sizeof(samples_[0]) + leaf_bits_.memory_bytes() +
         sizeof(PlacementInForce) + placement()->bits.memory_bytes();
}

}  // namespace

Result<std::unique_ptr<LayerMap>> LayerMap::open(std::shared_ptr<Store> store, const Digest& layer,
                                                 const std::string& spool_directory,
                                                 Deadline deadline) {
  VARVE_ASSIGN(UniqueFd spool, open_unlinked_temp(spool_directory));
  auto map =
      std::make_unique<LayerMapImpl>(std::move(store), layer, std::move(spool), spool_directory);
  if (auto status = map->read_header(deadline); !status) {
    return fail(std::move(status).error(), "layer " + layer.hex());
  }
  VARVE_TRY(map->refresh_placement(deadline));
  return map;
}

}  // namespace varve::chunkstore
