#include "chunkstore/build/pack_builder.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "chunkstore/build/internal/chunk_table.h"
#include "chunkstore/build/internal/pack_reuse.h"
#include "chunkstore/build/internal/pack_writer.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/read/chunk_reader.h"

namespace varve::chunkstore {
namespace {

// Chunks that adopt() copies are fetched in groups of this many.
constexpr size_t kCopyGroupCount = 16;
// Chunks that a worker takes at a time, since several are hashed faster than one after another.
constexpr size_t kTakenCountMax = 3;
constexpr size_t kInFlightBytesAThread = 8 << 20;
constexpr size_t kWriteBytesMin = 1 << 20;

size_t usable_cpu_count() {
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return static_cast<size_t>(std::max(1, CPU_COUNT(&cpus)));
}

/// One submitted chunk on its way.
struct Job {
  uint64_t ordinal = 0;
  Bytes raw;
  uint32_t raw_size = 0;
  uint32_t chunk = kNoChunk;          // number in the table, once hashed
  std::optional<StoredChunk> stored;  // set unless another place is known
  bool is_done = false;               // by a worker; guarded by the pipeline's mutex

  /// Held in memory, never 0.
  size_t held_bytes() const {
    return sizeof(Job) + raw.size() + (stored ? stored->bytes.size() : 0);
  }
};

class PackBuilderImpl : public PackBuilder {
 public:
  PackBuilderImpl(std::shared_ptr<Store> store, PackBuilderOptions options,
                  std::unique_ptr<Lease> lease, std::unique_ptr<ChunkIndex> index);
  ~PackBuilderImpl() override;

  Result<uint64_t> submit(Bytes raw) override;
  Status drain() override;
  Digest id(uint64_t ordinal) const override;
  Status adopt(LayerMap& layer) override;
  Result<PublishedLayer> publish_layer(const LayerParts& parts) override;
  Lease& lease() override { return *lease_; }
  PackBuilderStats stats() const override;

 private:
  void work();
  std::vector<Job*> take_jobs();
  Status process(ChunkEncoder& encoder, Job& job, const Digest& chunk_id);
  void notify_of_space();
  void write_in_order();
  Status write(Job& job);
  Status publish_pack(FinishedPack pack);
  Status flush_packs();

  Result<bool> adopt_chunk(const ChunkLocation& location);
  uint32_t pack_number(const Digest& pack);
  Result<Placement> make_placement(const Digest& layer, const std::vector<LayerChunk>& chunks);

  void set_error(Error error);
  Status error_status() const;

  const std::shared_ptr<Store> store_;
  const PackBuilderOptions options_;
  size_t in_flight_bytes_max_ = 0;  // set before the threads start
  const std::unique_ptr<Lease> lease_;
  PackReuse reuse_;
  PackWriter pack_writer_;  // the writer thread's, or the producer's when nothing is in flight

  mutable std::mutex mutex_;  // the pipeline: what follows up to the table
  std::condition_variable work_available_;
  std::condition_variable front_done_;
  std::condition_variable space_or_idle_;
  std::deque<Job*> waiting_;                   // for a worker
  std::deque<std::unique_ptr<Job>> in_order_;  // all that wait to be written, oldest first
  size_t in_flight_bytes_ = 0;  // held by all these, and by those that are being written
  size_t done_bytes_ = 0;       // before compression, of what only waits to be written
  uint64_t next_ordinal_ = 0;
  bool is_stopping_ = false;
  std::optional<Error> error_;

  mutable std::mutex table_mutex_;  // what follows
  ChunkTable table_;
  std::vector<uint32_t> chunk_of_ordinal_;
  std::vector<Digest> packs_;  // by number
  std::unordered_map<Digest, uint32_t, DigestHash> pack_numbers_;
  PackBuilderStats stats_;

  ThreadPool publisher_;  // one thread, one waiting: a finished pack holds an open file
  std::vector<std::thread> workers_;
  std::thread writer_;
};

PackBuilderImpl::PackBuilderImpl(std::shared_ptr<Store> store, PackBuilderOptions options,
                                 std::unique_ptr<Lease> lease, std::unique_ptr<ChunkIndex> index)
    : store_(std::move(store)),
      options_(std::move(options)),
      lease_(std::move(lease)),
      reuse_(*store_, *lease_, std::move(index)),
      pack_writer_(
          *store_, options_.pack_bytes_max,
          [this] {
            std::lock_guard lock(table_mutex_);
            packs_.emplace_back();
            return static_cast<uint32_t>(packs_.size() - 1);
          },
          [this](FinishedPack pack) { return publish_pack(std::move(pack)); }),
      publisher_(1, 1) {
  const size_t count = options_.thread_count == 0 ? usable_cpu_count() : options_.thread_count;
  in_flight_bytes_max_ = std::min(options_.in_flight_bytes_max, count * kInFlightBytesAThread);
  for (size_t i = 0; i < count; ++i) workers_.emplace_back([this] { work(); });
  writer_ = std::thread([this] { write_in_order(); });
}

PackBuilderImpl::~PackBuilderImpl() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  work_available_.notify_all();
  front_done_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  writer_.join();
  publisher_.wait_idle();
}

void PackBuilderImpl::set_error(Error error) {
  {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  work_available_.notify_all();
  front_done_.notify_all();
  space_or_idle_.notify_all();
}

Status PackBuilderImpl::error_status() const {
  std::lock_guard lock(mutex_);
  if (error_) return tl::unexpected(*error_);
  return {};
}

Result<uint64_t> PackBuilderImpl::submit(Bytes raw) {
  VARVE_CHECK_OP(raw.size(), >=, 1u);
  VARVE_CHECK_OP(raw.size(), <=, kChunkBytesMax);
  auto job = std::make_unique<Job>();
  job->raw_size = static_cast<uint32_t>(raw.size());
  job->raw = std::move(raw);
  std::unique_lock lock(mutex_);
  space_or_idle_.wait(lock, [&] {
    return error_ || in_flight_bytes_ == 0 ||
           in_flight_bytes_ + job->held_bytes() <= in_flight_bytes_max_;
  });
  if (error_) return tl::unexpected(*error_);
  const uint64_t ordinal = next_ordinal_++;
  job->ordinal = ordinal;
  in_flight_bytes_ += job->held_bytes();
  waiting_.push_back(job.get());
  in_order_.push_back(std::move(job));
  lock.unlock();
  work_available_.notify_one();
  return ordinal;
}

/// Some of the waiting jobs; the other workers' share stays.
std::vector<Job*> PackBuilderImpl::take_jobs() {
  const size_t count = std::clamp<size_t>(waiting_.size() / workers_.size(), 1, kTakenCountMax);
  std::vector<Job*> jobs(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  return jobs;
}

void PackBuilderImpl::work() {
  ChunkEncoder encoder(options_.compression_level);
  std::array<Digest, kTakenCountMax> ids;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_available_.wait(lock, [&] { return is_stopping_ || (!waiting_.empty() && !error_); });
    if (is_stopping_) return;
    const std::vector<Job*> jobs = take_jobs();
    lock.unlock();
    std::vector<ByteView> contents;
    for (const Job* job : jobs) contents.emplace_back(job->raw);
    sha256_all(contents, std::span(ids).first(jobs.size()));
    for (size_t i = 0; i < jobs.size(); ++i) {
      const size_t held_bytes = jobs[i]->held_bytes();
      if (auto status = process(encoder, *jobs[i], ids[i]); !status) {
        set_error(std::move(status).error());
      }
      lock.lock();
      jobs[i]->is_done = true;
      done_bytes_ += jobs[i]->raw_size;
      // What waits to be written is small: the workers need not stop while the disk is slow.
      in_flight_bytes_ -= held_bytes - jobs[i]->held_bytes();
      notify_of_space();
      // The writer takes many at a time, and the last ones without delay: while a job waits, a
      // worker will come here again.
      if (done_bytes_ >= kWriteBytesMin || waiting_.empty()) front_done_.notify_one();
      if (i + 1 < jobs.size()) lock.unlock();
    }
  }
}

Status PackBuilderImpl::process(ChunkEncoder& encoder, Job& job, const Digest& chunk_id) {
  bool is_first;
  {
    std::lock_guard lock(table_mutex_);
    job.chunk = table_.find(chunk_id);
    const bool is_unknown = job.chunk == kNoChunk;
    if (is_unknown) {
      KnownChunk chunk;
      chunk.id = chunk_id;
      chunk.first_ordinal = job.ordinal;
      chunk.raw_size = job.raw_size;
      job.chunk = table_.insert(chunk);
    }
    KnownChunk& chunk = table_.at(job.chunk);
    if (chunk_of_ordinal_.size() <= job.ordinal) chunk_of_ordinal_.resize(job.ordinal + 1);
    chunk_of_ordinal_[job.ordinal] = job.chunk;
    ++stats_.chunk_count;
    stats_.raw_bytes += job.raw_size;
    if (chunk.has_place() || chunk.first_ordinal < job.ordinal) {
      // It has a place, or an earlier chunk, which is written before this one, will give it one.
      job.raw = Bytes();
      return {};
    }
    // When a later chunk with the same content was hashed first, this one takes over.
    chunk.first_ordinal = job.ordinal;
    is_first = is_unknown;
  }
  if (is_first) {
    VARVE_ASSIGN(const auto reused, reuse_.find(chunk_id));
    if (reused && reused->entry.raw_size == job.raw_size) {
      std::lock_guard lock(table_mutex_);
      KnownChunk& chunk = table_.at(job.chunk);
      job.raw = Bytes();
      // An earlier chunk with this content may have taken over and be written by now.
      if (chunk.has_place()) return {};
      chunk.offset = reused->entry.offset;
      chunk.stored_size = reused->entry.stored_size;
      chunk.is_raw = reused->entry.is_raw;
      chunk.pack = pack_number(reused->pack);
      ++stats_.reused_chunk_count;
      stats_.reused_raw_bytes += job.raw_size;
      return {};
    }
  }
  job.stored = encoder.encode(std::move(job.raw));
  job.raw = Bytes();
  return {};
}

/// Not for every chunk: waking the producer costs as much as reading one.
void PackBuilderImpl::notify_of_space() {
  if (in_flight_bytes_ <= in_flight_bytes_max_ / 2) space_or_idle_.notify_all();
}

void PackBuilderImpl::write_in_order() {
  std::vector<std::unique_ptr<Job>> done;
  std::unique_lock lock(mutex_);
  for (;;) {
    front_done_.wait(lock, [&] {
      return is_stopping_ || (!error_ && !in_order_.empty() && in_order_.front()->is_done);
    });
    if (is_stopping_) return;
    for (; !in_order_.empty() && in_order_.front()->is_done; in_order_.pop_front())
      done.push_back(std::move(in_order_.front()));
    lock.unlock();
    size_t written_bytes = 0;
    size_t freed_bytes = 0;
    for (const auto& job : done) {
      if (auto status = write(*job); !status) {
        set_error(std::move(status).error());
        break;
      }
      written_bytes += job->raw_size;
      freed_bytes += job->held_bytes();
    }
    done.clear();
    lock.lock();
    done_bytes_ -= written_bytes;
    in_flight_bytes_ -= freed_bytes;
    notify_of_space();
  }
}

Status PackBuilderImpl::write(Job& job) {
  Digest chunk_id;
  {
    std::lock_guard lock(table_mutex_);
    const KnownChunk& chunk = table_.at(job.chunk);
    if (chunk.has_place()) return {};
    chunk_id = chunk.id;
  }
  VARVE_CHECK(job.stored.has_value());
  VARVE_ASSIGN(const auto place, pack_writer_.add(chunk_id, job.raw_size, *job.stored));
  std::lock_guard lock(table_mutex_);
  KnownChunk& chunk = table_.at(job.chunk);
  chunk.pack = place.pack;
  chunk.offset = place.offset;
  chunk.stored_size = static_cast<uint32_t>(job.stored->bytes.size());
  chunk.is_raw = job.stored->is_raw;
  ++stats_.new_chunk_count;
  stats_.new_raw_bytes += job.raw_size;
  stats_.new_stored_bytes += chunk.stored_size;
  return {};
}

Status PackBuilderImpl::publish_pack(FinishedPack pack) {
  {
    std::lock_guard lock(table_mutex_);
    packs_[pack.number] = pack.id;
  }
  // std::function wants a copyable task.
  auto shared_pack = std::make_shared<FinishedPack>(std::move(pack));
  publisher_.submit([this, shared_pack] {
    const std::string key = pack_key(shared_pack->id);
    const auto publish = [&]() -> Status {
      VARVE_TRY(lease_->add({&key, 1}));
      VARVE_TRY(claim(*store_, {&key, 1}, options_.sleep));
      return shared_pack->writer->publish(key);
    };
    if (auto status = publish(); !status) {
      set_error(std::move(status).error().with_context("publishing a pack"));
      return;
    }
    std::lock_guard lock(table_mutex_);
    ++stats_.pack_count;
  });
  return error_status();
}

Status PackBuilderImpl::drain() {
  std::unique_lock lock(mutex_);
  space_or_idle_.wait(lock, [&] { return error_ || in_flight_bytes_ == 0; });
  if (error_) return tl::unexpected(*error_);
  return {};
}

Digest PackBuilderImpl::id(uint64_t ordinal) const {
  std::lock_guard lock(table_mutex_);
  VARVE_CHECK_OP(ordinal, <, chunk_of_ordinal_.size());
  return table_.at(chunk_of_ordinal_[ordinal]).id;
}

uint32_t PackBuilderImpl::pack_number(const Digest& pack) {
  const auto [entry, is_new] =
      pack_numbers_.try_emplace(pack, static_cast<uint32_t>(packs_.size()));
  if (is_new) packs_.push_back(pack);
  return entry->second;
}

Result<bool> PackBuilderImpl::adopt_chunk(const ChunkLocation& location) {
  {
    std::lock_guard lock(table_mutex_);
    if (table_.find(location.id) != kNoChunk) return true;
  }
  VARVE_ASSIGN(auto reused, reuse_.find_in(location.pack, location.id));
  if (!reused) {
    VARVE_ASSIGN(reused, reuse_.find(location.id));
  }
  if (!reused || reused->entry.raw_size != location.raw_size) return false;
  std::lock_guard lock(table_mutex_);
  KnownChunk chunk;
  chunk.id = location.id;
  chunk.raw_size = location.raw_size;
  chunk.pack = pack_number(reused->pack);
  chunk.offset = reused->entry.offset;
  chunk.stored_size = reused->entry.stored_size;
  chunk.is_raw = reused->entry.is_raw;
  table_.insert(chunk);
  ++stats_.reused_chunk_count;
  stats_.reused_raw_bytes += location.raw_size;
  return true;
}

Status PackBuilderImpl::adopt(LayerMap& layer) {
  // So that no chunk is on its way while it is looked for.
  VARVE_TRY(drain());
  ChunkReader reader(store_);
  std::vector<ChunkLocation> to_copy;
  const auto copy = [&]() -> Status {
    VARVE_ASSIGN(auto chunks, reader.read_all(layer, to_copy, kNoDeadline));
    for (Bytes& raw : chunks) VARVE_TRY(submit(std::move(raw)));
    to_copy.clear();
    return drain();
  };
  for (uint64_t index = 0; index < layer.header().chunk_count; ++index) {
    VARVE_ASSIGN(const ChunkLocation location, layer.chunk(index, kNoDeadline));
    VARVE_ASSIGN(const bool is_adopted, adopt_chunk(location));
    if (!is_adopted) to_copy.push_back(location);
    if (to_copy.size() == kCopyGroupCount) VARVE_TRY(copy());
  }
  return copy();
}

Status PackBuilderImpl::flush_packs() {
  VARVE_TRY(drain());
  // Nothing is in flight and the producer is here: the writer thread has nothing to write.
  VARVE_TRY(pack_writer_.flush());
  publisher_.wait_idle();
  return error_status();
}

Result<Placement> PackBuilderImpl::make_placement(const Digest& layer,
                                                  const std::vector<LayerChunk>& chunks) {
  std::lock_guard lock(table_mutex_);
  Placement placement;
  placement.layer = layer;
  placement.entries.reserve(chunks.size());
  // Numbers of the build's packs become positions in this placement's table.
  std::vector<uint32_t> position(packs_.size(), kNoPack);
  std::vector<bool> is_counted(table_.count());
  for (const LayerChunk& wanted : chunks) {
    const uint32_t number = table_.find(wanted.id);
    if (number == kNoChunk || table_.at(number).raw_size != wanted.raw_size) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("layer {} names chunk {} of {} bytes, which this build did not store",
                              layer.hex(), wanted.id.hex(), wanted.raw_size));
    }
    const KnownChunk& chunk = table_.at(number);
    if (position[chunk.pack] == kNoPack) {
      position[chunk.pack] = static_cast<uint32_t>(placement.packs.size());
      placement.packs.push_back(packs_[chunk.pack]);
    }
    placement.entries.push_back(
        {position[chunk.pack], chunk.offset, chunk.stored_size, chunk.is_raw});
    if (!is_counted[number]) placement.stored_bytes += chunk.stored_size;
    is_counted[number] = true;
  }
  return placement;
}

Result<PublishedLayer> PackBuilderImpl::publish_layer(const LayerParts& parts) {
  VARVE_TRY(flush_packs());
  VARVE_ASSIGN(const EncodedLayer layer,
               encode_layer(parts.image_size, parts.metadata_size, parts.root_nid, parts.chunks));
  VARVE_ASSIGN(const Placement placement, make_placement(layer.id, parts.chunks));
  const Bytes placement_object = encode_placement(placement);
  const Digest placement_id = sha256(placement_object);
  const std::string keys[] = {placement_key(layer.id, placement_id),
                              current_placement_key(layer.id), layer_key(layer.id)};
  VARVE_TRY(lease_->add(keys));
  VARVE_TRY(claim(*store_, keys, options_.sleep));
  VARVE_TRY(lease_->renew());
  VARVE_TRY(store_->put_if_absent(keys[0], placement_object, kNoDeadline));
  VARVE_TRY(store_->replace(keys[1], as_bytes(encode_pointer(placement_id)), kNoDeadline));
  VARVE_ASSIGN(const bool is_new, store_->put_if_absent(keys[2], layer.object, kNoDeadline));
  return PublishedLayer{layer.id, placement.stored_bytes, is_new};
}

PackBuilderStats PackBuilderImpl::stats() const {
  std::lock_guard lock(table_mutex_);
  return stats_;
}

}  // namespace

Result<std::unique_ptr<PackBuilder>> PackBuilder::create(std::shared_ptr<Store> store,
                                                         PackBuilderOptions options) {
  std::unique_ptr<ChunkIndex> index;
  if (options.index_directory) {
    const std::string directory = options.index_directory->empty() ? default_index_directory(*store)
                                                                   : *options.index_directory;
    VARVE_ASSIGN(index, ChunkIndex::open(*store, directory));
  }
  return create_with_index(std::move(store), std::move(options), std::move(index));
}

Result<std::unique_ptr<PackBuilder>> PackBuilder::create_with_index(
    std::shared_ptr<Store> store, PackBuilderOptions options, std::unique_ptr<ChunkIndex> index) {
  if (options.compression_level != kCompressionLevelDefault &&
      (options.compression_level < kCompressionLevelMin ||
       options.compression_level > kCompressionLevelMax)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("compression level {} is outside {} … {}", options.compression_level,
                            kCompressionLevelMin, kCompressionLevelMax));
  }
  VARVE_ASSIGN(auto lease, Lease::take(store, options.lease_ttl_s));
  return std::make_unique<PackBuilderImpl>(std::move(store), std::move(options), std::move(lease),
                                           std::move(index));
}

}  // namespace varve::chunkstore
