#include "chunkstore/read/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/thread_pool.h"
#include "chunkstore/format/chunk.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/lease.h"
#include "chunkstore/format/pack.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/format/ref.h"
#include "chunkstore/store/closure.h"

namespace varve::chunkstore {
namespace {

// Indexes of packs kept for checking placements, ~50 KiB each.
constexpr size_t kCachedIndexCount = 512;

/// Pack indexes, least recently used dropped first. Loop-local.
class IndexCache {
 public:
  explicit IndexCache(Store& store) : store_(store) {}

  /// Entries sorted by offset; an error message when the index cannot be read.
  const Result<std::vector<PackEntry>>& get(const Digest& pack) {
    const auto found = by_pack_.find(pack);
    if (found != by_pack_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      const Result<std::vector<PackEntry>>& known = recent_.front().second;
      // One that was deleted may have been published again.
      if (known || known.error().code() != ErrorCode::kNotFound) return known;
      recent_.pop_front();
    }
    recent_.emplace_front(pack, read_pack_index(store_, pack, kNoDeadline));
    by_pack_[pack] = recent_.begin();
    if (recent_.size() > kCachedIndexCount) {
      by_pack_.erase(recent_.back().first);
      recent_.pop_back();
    }
    return recent_.front().second;
  }

 private:
  using Item = std::pair<Digest, Result<std::vector<PackEntry>>>;
  Store& store_;
  std::list<Item> recent_;
  std::unordered_map<Digest, std::list<Item>::iterator, DigestHash> by_pack_;
};

/// Builds publish and collections delete while this runs. Both do what names before, or after, what
/// is named, so that a fault that they seem to have caused is none: the object that has it is gone,
/// or there is what was missing from the list.
class Verifier {
 public:
  Verifier(Store& store, const VerifyOptions& options)
      : store_(store), options_(options), indexes_(store) {}

  Result<VerifyResult> run();

 private:
  Status list_all();
  void check_key(const std::string& key);
  void check_packs();
  Status check_pack(const std::string& key, uint64_t size);
  size_t check_chunks(const std::string& key, ByteView pack, const std::vector<PackEntry>& entries);
  void check_layers();
  Status check_layer(const Digest& layer);
  Result<std::vector<LayerChunk>> read_chunks(const Digest& layer, const LayerHeader& header);
  void check_placement(const Digest& layer, const Digest& placement, const LayerHeader& header,
                       const std::vector<LayerChunk>& chunks);
  Status check_placement_object(const std::string& key, const Digest& layer,
                                const Digest& placement, const LayerHeader& header,
                                const std::vector<LayerChunk>& chunks);
  Status check_place(ByteView object, const PlacementHeader& header, size_t index,
                     const LayerChunk& chunk);
  void check_images();
  void check_refs();
  Status check_record(const std::string& key);

  /// `holder` is the object that would be gone if this were no fault.
  void report(const std::string& key, const std::string& message, const std::string& holder) {
    if (is_gone(store_, holder)) return;
    std::lock_guard lock(mutex_);
    result_.faults.push_back({key, message});
    if (options_.on_fault) options_.on_fault(result_.faults.back());
  }
  void report(const std::string& key, const std::string& message) { report(key, message, key); }
  void report_if(const std::string& key, const Status& status) {
    if (!status) report(key, status.error().to_string());
  }
  bool has(const std::string& key) const { return keys_.count(key) != 0 || !is_gone(store_, key); }
  /// Whether what the pointer leads to is there, also if the pointer is replaced meanwhile.
  Status check_pointer(const std::function<Result<Digest>()>& read,
                       const std::function<std::string(const Digest&)>& key_of,
                       std::string_view what) const;

  Store& store_;
  const VerifyOptions& options_;
  IndexCache indexes_;
  std::map<std::string, uint64_t> keys_;  // with sizes
  std::map<Digest, std::vector<Digest>> placements_of_layer_;
  std::mutex mutex_;  // what follows, while packs are read by threads
  VerifyResult result_;
  uint64_t done_bytes_ = 0;
};

Result<VerifyResult> Verifier::run() {
  VARVE_TRY(list_all());
  check_packs();
  check_layers();
  check_images();
  check_refs();
  std::ranges::sort(result_.faults, {}, &VerifyFault::key);
  return std::move(result_);
}

Status Verifier::list_all() {
  VARVE_TRY(store_.list(
      "",
      [&](const std::string& key, const ObjectInfo& info) -> Status {
        keys_.emplace(key, info.size);
        return {};
      },
      kNoDeadline));
  for (const auto& object : keys_) check_key(object.first);
  return {};
}

/// Sorts keys into what the later steps look at, and reports those that mean nothing.
void Verifier::check_key(const std::string& key) {
  if (key == kStoreMarkerKey || key.starts_with("leases/") || key.starts_with("tombstones/")) {
    report_if(key, check_record(key));
    return;
  }
  if (key.starts_with("refs/")) {
    const auto ref = parse_ref(std::string_view(key).substr(5));
    if (!ref || ref_key(*ref) != key) report(key, "is not the key of a ref");
    return;
  }
  const auto digest = digest_of_key(key);
  if (digest &&
      (key == pack_key(*digest) || key == layer_key(*digest) || key == image_key(*digest))) {
    return;
  }
  // placements/<layer>/<placement or "current">
  const size_t slash = key.rfind('/');
  const auto layer =
      slash == std::string::npos ? std::nullopt : digest_of_key(key.substr(0, slash));
  if (layer && digest && key == placement_key(*layer, *digest)) {
    placements_of_layer_[*layer].push_back(*digest);
    return;
  }
  if (layer && key == current_placement_key(*layer)) return;
  report(key, "is not the key of any object");
}

Status Verifier::check_record(const std::string& key) {
  VARVE_ASSIGN(const Bytes bytes, store_.get(key, kLeaseBytesMax, kNoDeadline));
  if (key == kStoreMarkerKey) {
    VARVE_TRY(parse_store_marker(bytes));
  } else if (key.starts_with("leases/")) {
    if (!is_uuid(std::string_view(key).substr(7))) {
      return fail(ErrorCode::kCorruption, "is not the key of a lease");
    }
    VARVE_TRY(parse_lease(bytes));
  } else {
    VARVE_TRY(parse_tombstone(bytes));
  }
  return {};
}

void Verifier::check_packs() {
  uint64_t all_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> packs;
  for (auto it = keys_.lower_bound("packs/"); it != keys_.end() && it->first.starts_with("packs/");
       ++it) {
    if (!digest_of_key(it->first)) continue;
    packs.emplace_back(*it);
    all_bytes += it->second;
  }
  result_.pack_count = packs.size();
  const size_t thread_count = options_.thread_count != 0
                                  ? options_.thread_count
                                  : std::max(1u, std::thread::hardware_concurrency());
  ThreadPool pool(thread_count, thread_count);
  for (const auto& [key, size] : packs) {
    pool.submit([this, key = key, size = size, all_bytes] {
      report_if(key, check_pack(key, size));
      std::lock_guard lock(mutex_);
      done_bytes_ += size;
      if (options_.on_progress) options_.on_progress(done_bytes_, all_bytes);
    });
  }
  pool.wait_idle();
}

Status Verifier::check_pack(const std::string& key, uint64_t size) {
  VARVE_ASSIGN(const auto entries, read_pack_index(store_, *digest_of_key(key), kNoDeadline));
  {
    std::lock_guard lock(mutex_);
    result_.chunk_count += entries.size();
  }
  if (!options_.is_deep) return {};
  if (size > kPackBytesMax) return fail(ErrorCode::kCorruption, "is too large for a pack");
  VARVE_ASSIGN(const Bytes pack, store_.get(key, kPackBytesMax, kNoDeadline));
  // Chunks first: their faults say more than that of the whole.
  if (check_chunks(key, pack, entries) != 0) return {};
  VARVE_ASSIGN(const PackTrailer trailer,
               parse_pack_trailer(ByteView(pack).last(std::min(pack.size(), kPackTrailerBytes)),
                                  pack.size()));
  // A frame may decompress to the same bytes although some of its own are damaged.
  if (xxh3_128(ByteView(pack).first(trailer.index_offset)).canonical() != trailer.stored_hash)
    return fail(ErrorCode::kCorruption, "stored chunks do not match their hash in the trailer");
  return {};
}

/// Reports each chunk that is wrong; returns how many are.
size_t Verifier::check_chunks(const std::string& key, ByteView pack,
                              const std::vector<PackEntry>& entries) {
  ChunkDecoder decoder;
  Bytes raw;
  size_t fault_count = 0;
  for (const PackEntry& entry : entries) {
    const std::string what = fmt::format("chunk {} at offset {}: ", entry.id.hex(), entry.offset);
    if (uint64_t{entry.offset} + entry.stored_size > pack.size()) {
      report(key, what + "the pack became shorter while it was read");
      ++fault_count;
      continue;
    }
    raw.resize(entry.raw_size);
    const auto status =
        decoder.decode(pack.subspan(entry.offset, entry.stored_size), entry.is_raw, entry.id, raw);
    if (!status) {
      report(key, what + status.error().to_string());
      ++fault_count;
    }
  }
  return fault_count;
}

void Verifier::check_layers() {
  for (auto it = keys_.lower_bound("layers/");
       it != keys_.end() && it->first.starts_with("layers/"); ++it) {
    const auto layer = digest_of_key(it->first);
    if (!layer) continue;
    ++result_.layer_count;
    report_if(it->first, check_layer(*layer));
  }
  for (const auto& [layer, placements] : placements_of_layer_) {
    // Without its layer it is what a build or a collection that was cut leaves: garbage. An image
    // that needs the layer misses it.
    if (has(layer_key(layer))) result_.placement_count += placements.size();
  }
}

Status Verifier::check_layer(const Digest& layer) {
  VARVE_ASSIGN(const LayerHeader header, read_layer_header(store_, layer, kNoDeadline));
  VARVE_ASSIGN(const auto chunks, read_chunks(layer, header));
  for (const Digest& placement : placements_of_layer_[layer]) {
    check_placement(layer, placement, header, chunks);
  }
  const auto current = check_pointer(
      [&] { return read_current_placement(store_, layer, kNoDeadline); },
      [&](const Digest& placement) { return placement_key(layer, placement); }, "placement");
  if (!current) {
    report(current_placement_key(layer), current.error().to_string(), layer_key(layer));
  }
  return {};
}

Status Verifier::check_pointer(const std::function<Result<Digest>()>& read,
                               const std::function<std::string(const Digest&)>& key_of,
                               std::string_view what) const {
  std::optional<Digest> missing;
  for (;;) {
    VARVE_ASSIGN(const Digest target, read());
    if (has(key_of(target))) return {};
    if (missing == target) {
      return fail(ErrorCode::kCorruption,
                  fmt::format("names {} {}, which is missing", what, target.hex()));
    }
    missing = target;
  }
}

Result<std::vector<LayerChunk>> Verifier::read_chunks(const Digest& layer,
                                                      const LayerHeader& header) {
  const std::string key = layer_key(layer);
  if (keys_.at(key) != header.object_size()) {
    return fail(ErrorCode::kCorruption,
                fmt::format("has {} bytes instead of {}", keys_.at(key), header.object_size()));
  }
  Bytes bytes(header.header_size());
  VARVE_TRY(store_.get_range(key, 0, bytes, kNoDeadline));
  const Digest found = sha256(bytes);
  if (found != layer) {
    return fail(ErrorCode::kCorruption, "header has the hash " + found.hex());
  }
  VARVE_ASSIGN(const auto leaves,
               parse_leaf_table(ByteView(bytes).subspan(kLayerHeaderFixedBytes), header, 0, 0));
  std::vector<LayerChunk> chunks;
  uint64_t offset = 0;
  bool metadata_ends_at_chunk = false;
  for (uint32_t leaf = 0; leaf < header.leaf_count(); ++leaf) {
    const uint64_t end =
        leaf + 1 < header.leaf_count() ? leaves[leaf + 1].first_offset : header.image_size;
    Bytes page(size_t{header.leaf_entry_count(leaf)} * kLeafEntryBytes);
    VARVE_TRY(store_.get_range(key, header.leaf_page_offset(leaf), page, kNoDeadline));
    auto parsed = parse_leaf(page, leaves[leaf], end - leaves[leaf].first_offset);
    if (!parsed) return fail(std::move(parsed).error(), fmt::format("leaf {}", leaf));
    for (const LayerChunk& chunk : *parsed) {
      offset += chunk.raw_size;
      metadata_ends_at_chunk |= offset == header.metadata_size;
    }
    chunks.insert(chunks.end(), parsed->begin(), parsed->end());
  }
  if (!metadata_ends_at_chunk) {
    return fail(
        ErrorCode::kCorruption,
        fmt::format("no chunk ends at the metadata's end, offset {}", header.metadata_size));
  }
  return chunks;
}

void Verifier::check_placement(const Digest& layer, const Digest& placement,
                               const LayerHeader& header, const std::vector<LayerChunk>& chunks) {
  const std::string key = placement_key(layer, placement);
  report_if(key, check_placement_object(key, layer, placement, header, chunks));
}

Status Verifier::check_placement_object(const std::string& key, const Digest& layer,
                                        const Digest& placement, const LayerHeader& header,
                                        const std::vector<LayerChunk>& chunks) {
  // Its own header bounds what is read: the file may be sparse and larger than all memory.
  const uint64_t size = keys_.at(key);
  Bytes fixed(std::min<uint64_t>(size, kPlacementFixedBytes));
  VARVE_TRY(store_.get_range(key, 0, fixed, kNoDeadline));
  VARVE_ASSIGN(const auto parsed, parse_placement_header(fixed, layer, header.chunk_count));
  if (size != parsed.object_size()) {
    return fail(ErrorCode::kCorruption,
                fmt::format("has {} bytes instead of {}", size, parsed.object_size()));
  }
  VARVE_ASSIGN(const Bytes object, store_.get(key, size, kNoDeadline));
  const Digest found = sha256(object);
  if (found != placement) {
    return fail(ErrorCode::kCorruption, "content has the hash " + found.hex());
  }
  size_t fault_count = 0;
  std::string first_fault;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto status = check_place(object, parsed, i, chunks[i]);
    if (status) continue;
    if (fault_count++ == 0) {
      first_fault =
          fmt::format("entry {}, chunk {}: {}", i, chunks[i].id.hex(), status.error().to_string());
    }
  }
  if (fault_count == 0) return {};
  // A pack that is missing makes thousands: one line has to do.
  return fail(ErrorCode::kCorruption,
              fault_count == 1
                  ? first_fault
                  : fmt::format("{} entries are wrong; the first: {}", fault_count, first_fault));
}

Status Verifier::check_place(ByteView object, const PlacementHeader& header, size_t index,
                             const LayerChunk& chunk) {
  VARVE_ASSIGN(
      const PlacementEntry entry,
      parse_placement_entry(
          object.subspan(header.header_size() + index * kPlacementEntryBytes, kPlacementEntryBytes),
          header.pack_count, chunk.raw_size));
  Digest pack;
  std::ranges::copy(object.subspan(kPlacementFixedBytes + size_t{entry.pack} * 32, 32),
                    pack.bytes.begin());
  const auto& entries = indexes_.get(pack);
  if (!entries) return tl::unexpected(entries.error());
  const auto found = std::ranges::lower_bound(*entries, entry.offset, {}, &PackEntry::offset);
  const PackEntry wanted{chunk.id, entry.offset, entry.stored_size, chunk.raw_size, entry.is_raw};
  if (found != entries->end() && *found == wanted) return {};
  return fail(ErrorCode::kCorruption,
              fmt::format("pack {} has no such chunk at offset {}", pack.hex(), entry.offset));
}

void Verifier::check_images() {
  for (auto it = keys_.lower_bound("images/");
       it != keys_.end() && it->first.starts_with("images/"); ++it) {
    const auto id = digest_of_key(it->first);
    if (!id) continue;
    ++result_.image_count;
    const auto check = [&]() -> Status {
      VARVE_ASSIGN(const Bytes bytes, store_.get(it->first, kImageJsonBytesMax, kNoDeadline));
      const Digest found = sha256(bytes);
      if (found != *id) {
        return fail(ErrorCode::kCorruption, "content has the hash " + found.hex());
      }
      VARVE_ASSIGN(const Image image, parse_image(bytes));
      for (const Digest& layer : image.layers) {
        if (!has(layer_key(layer))) {
          return fail(ErrorCode::kCorruption, "layer " + layer.hex() + " is missing");
        }
      }
      return {};
    };
    report_if(it->first, check());
  }
}

void Verifier::check_refs() {
  for (auto it = keys_.lower_bound("refs/"); it != keys_.end() && it->first.starts_with("refs/");
       ++it) {
    ++result_.ref_count;
    const auto read = [&]() -> Result<Digest> {
      VARVE_ASSIGN(const Bytes bytes, store_.get(it->first, kPointerBytes, kNoDeadline));
      return parse_pointer(bytes);
    };
    report_if(it->first, check_pointer(read, image_key, "image"));
  }
}

}  // namespace

Result<VerifyResult> verify_store(Store& store, const VerifyOptions& options) {
  return Verifier(store, options).run();
}

}  // namespace varve::chunkstore
