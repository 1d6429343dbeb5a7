#include "fs/fetch/read_executor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fs/layer/attached_layer.h"

namespace varve::fs {

using chunkstore::ChunkLocation;

/// Decodes what the fetcher brings: straight into a payload when one read wants the whole chunk,
/// else into a buffer that the cache keeps.
class StoreReadExecutor::Consumer : public ChunkConsumer {
 public:
  struct Lead {
    const Need* need;
    SingleFlight::Leader leader;
    std::shared_ptr<ChunkBuffer> buffer;  // Null: straight into the payload of the one use.
  };

  Consumer(StoreReadExecutor& executor, AttachedLayer& layer)
      : executor_(executor), layer_(layer) {}

  std::vector<Lead>& leads() { return leads_; }

  std::optional<MutableByteView> begin(size_t index, const ChunkLocation& location) override {
    Lead& lead = leads_[index];
    lead.buffer.reset();
    const Use& use = lead.need->uses.front();
    const bool is_whole =
        lead.need->uses.size() == 1 && use.chunk_offset == 0 && use.size == location.raw_size;
    if (is_whole && claim(progress_of(lead))) return payload_of(lead);
    lead.buffer = std::make_shared<ChunkBuffer>(location.raw_size);
    return lead.buffer->view();
  }

  void decoded(size_t index, const ChunkLocation& location) override {
    Lead& lead = leads_[index];
    layer_.stats().fetched_chunks.fetch_add(1, std::memory_order_relaxed);
    if (lead.buffer != nullptr) {
      const ChunkBytes shared = std::move(lead.buffer);
      executor_.cache_.insert(location.id, shared);
      executor_.deliver(*lead.need, shared);
      lead.leader.land(shared);
      return;
    }
    if (lead.leader.has_followers_or_close()) {
      const MutableByteView raw = payload_of(lead);
      auto copy = std::make_shared<ChunkBuffer>(raw.size());
      copy_bytes(raw, copy->view().data());
      executor_.cache_.insert(location.id, copy);
      lead.leader.land(ChunkBytes(std::move(copy)));
    }
    executor_.part_is_there(progress_of(lead));
  }

  void damaged(size_t index) override {
    Lead& lead = leads_[index];
    if (lead.buffer == nullptr) unclaim(progress_of(lead));
  }

  void failed(size_t index, const ChunkLocation&, const Error& error) override {
    Lead& lead = leads_[index];
    // First, so that a reader who tries again at once starts a fetch of its own and does not join
    // this one.
    lead.leader.land(tl::unexpected(error));
    executor_.fail_need(layer_, *lead.need, error);
  }

 private:
  Progress& progress_of(const Lead& lead) {
    return executor_.progress_[lead.need->uses.front().progress_index];
  }
  // While claimed.
  MutableByteView payload_of(const Lead& lead) {
    const Use& use = lead.need->uses.front();
    return progress_of(lead).read->payload().subspan(use.payload_offset, use.size);
  }

  StoreReadExecutor& executor_;
  AttachedLayer& layer_;
  std::vector<Lead> leads_;
};

void StoreReadExecutor::execute(const std::vector<std::shared_ptr<ReadOperation>>& batch) {
  progress_.clear();
  for (const auto& read : batch) {
    if (!read->is_answered()) progress_.push_back({read});
  }
  if (progress_.empty()) return;
  AttachedLayer& layer = *progress_.front().read->layer;
  std::vector<Need> needs;
  for (size_t i = 0; i < progress_.size(); ++i) plan(layer, i, needs);
  std::vector<const Need*> missing;
  for (const Need& need : needs) missing.push_back(&need);
  fetch(layer, std::move(missing));
  progress_.clear();
}

void StoreReadExecutor::plan(AttachedLayer& layer, size_t progress_index,
                             std::vector<Need>& needs) {
  Progress& progress = progress_[progress_index];
  for (const ReadSegment& segment : progress.read->segments) {
    if (segment.image_offset == ReadSegment::kHole) continue;
    Status added = add_needs(layer, progress_index, segment, needs);
    if (!added) {
      log_(LogLevel::kError, "map " + layer.id().hex(),
           "layer " + layer.id().hex() + ": finding image offset " +
               std::to_string(segment.image_offset) + ": " + added.error().to_string());
      fail_read(progress, error_code_to_errno(added.error().code()));
      return;
    }
  }
  if (!fill_local_parts(layer, progress)) fail_read(progress, EIO);
  // Nothing but holes and metadata, which the queue thread could not read a moment ago.
  if (!progress.is_over && progress.missing_count == 0 && progress.read->claim()) {
    progress.is_over = true;
    pending_.finish(*progress.read);
  }
}

Status StoreReadExecutor::add_needs(AttachedLayer& layer, size_t progress_index,
                                    const ReadSegment& segment, std::vector<Need>& needs) {
  Progress& progress = progress_[progress_index];
  const uint64_t end = segment.image_offset + segment.size;
  for (uint64_t offset = std::max(segment.image_offset, layer.metadata_bytes()); offset < end;) {
    if (needs.empty() || offset < needs.back().location.image_offset ||
        offset >= needs.back().location.image_offset + needs.back().location.raw_size) {
      VARVE_ASSIGN(ChunkLocation location, layer.locate(offset, progress.read->deadline));
      const auto known = std::find_if(needs.begin(), needs.end(), [&](const Need& need) {
        return need.location.index == location.index;
      });
      if (known == needs.end()) {
        needs.push_back({std::move(location), {}});
      } else {
        std::rotate(known, known + 1, needs.end());
      }
    }
    Need& need = needs.back();
    const auto in_chunk = static_cast<uint32_t>(offset - need.location.image_offset);
    const auto size =
        static_cast<uint32_t>(std::min<uint64_t>(end - offset, need.location.raw_size - in_chunk));
    need.uses.push_back(
        {progress_index, in_chunk, size,
         segment.payload_offset + static_cast<uint32_t>(offset - segment.image_offset)});
    ++progress.missing_count;
    offset += size;
  }
  return {};
}

// Holes and metadata; what is missing afterwards are chunks.
bool StoreReadExecutor::fill_local_parts(AttachedLayer& layer, Progress& progress) {
  if (!progress.read->claim()) {
    progress.is_over = true;
    return true;
  }
  const MutableByteView payload = progress.read->payload();
  bool is_filled = true;
  for (const ReadSegment& segment : progress.read->segments) {
    uint8_t* to = payload.data() + segment.payload_offset;
    if (segment.image_offset == ReadSegment::kHole) {
      std::memset(to, 0, segment.size);
    } else if (segment.image_offset < layer.metadata_bytes()) {
      const uint64_t size =
          std::min<uint64_t>(segment.size, layer.metadata_bytes() - segment.image_offset);
      is_filled = is_filled && layer.metadata().read(segment.image_offset, {to, size}).has_value();
    }
  }
  progress.read->unclaim();
  return is_filled;
}

void StoreReadExecutor::fetch(AttachedLayer& layer, std::vector<const Need*> needs) {
  const std::shared_ptr<LayerSource> source = layer.source();
  const Deadline deadline = latest_deadline();
  while (!needs.empty()) needs = fetch_once(layer, source, needs, deadline);
}

// Returns the needs that followed a fetch whose own deadline was nearer or which was given up, to
// be fetched anew.
std::vector<const StoreReadExecutor::Need*> StoreReadExecutor::fetch_once(
    AttachedLayer& layer, const std::shared_ptr<LayerSource>& source,
    const std::vector<const Need*>& needs, Deadline deadline) {
  struct Follow {
    const Need* need;
    SingleFlight::Follower follower;
  };
  Consumer consumer(*this, layer);
  std::vector<Follow> follows;
  std::vector<ChunkLocation> wanted;
  for (const Need* need : needs) {
    if (const ChunkBytes cached = cache_.find(need->location.id);
        cached != nullptr && cached->size() == need->location.raw_size) {
      layer.stats().memory_hits.fetch_add(1, std::memory_order_relaxed);
      deliver(*need, cached);
      continue;
    }
    SingleFlight::Ticket ticket = source->flights.join(need->location.index);
    if (ticket.follower) {
      follows.push_back({need, std::move(*ticket.follower)});
      continue;
    }
    consumer.leads().push_back({need, std::move(*ticket.leader), nullptr});
    wanted.push_back(need->location);
  }
  layer.fetch(fetcher_, source, wanted, deadline, consumer);
  // Own flights have landed, so two threads that follow each other's cannot wait in a circle.
  std::vector<const Need*> again;
  for (Follow& follow : follows) {
    Result<ChunkBytes> bytes = follow.follower.wait(deadline);
    if (bytes) {
      deliver(*follow.need, *bytes);
    } else if (bytes.error().code() == ErrorCode::kCancelled ||
               (bytes.error().code() == ErrorCode::kTimedOut && MonotonicClock::now() < deadline)) {
      again.push_back(follow.need);
    } else {
      fail_need(layer, *follow.need, bytes.error());
    }
  }
  return again;
}

// The chunks that are decoded together may be parts of one read.
bool StoreReadExecutor::claim(Progress& progress) {
  if (progress.claim_count == 0 && !progress.read->claim()) return false;
  ++progress.claim_count;
  return true;
}

void StoreReadExecutor::unclaim(Progress& progress) {
  if (--progress.claim_count == 0) progress.read->unclaim();
}

void StoreReadExecutor::deliver(const Need& need, const ChunkBytes& bytes) {
  for (const Use& use : need.uses) {
    Progress& progress = progress_[use.progress_index];
    if (progress.is_over) continue;
    if (!claim(progress)) {
      progress.is_over = true;
      continue;
    }
    std::memcpy(progress.read->payload().data() + use.payload_offset,
                bytes->view().data() + use.chunk_offset, use.size);
    part_is_there(progress);
  }
}

// The read is claimed.
void StoreReadExecutor::part_is_there(Progress& progress) {
  if (--progress.missing_count > 0) {
    unclaim(progress);
    return;
  }
  progress.is_over = true;
  pending_.finish(*progress.read);
}

void StoreReadExecutor::fail_read(Progress& progress, int errno_value) {
  if (progress.is_over) return;
  progress.is_over = true;
  progress.read->layer->stats().failed_reads.fetch_add(1, std::memory_order_relaxed);
  if (progress.read->claim()) pending_.finish_with_error(*progress.read, errno_value);
}

void StoreReadExecutor::fail_need(AttachedLayer& layer, const Need& need, const Error& error) {
  log_(LogLevel::kError, "chunk " + need.location.id.hex(),
       "layer " + layer.id().hex() + ": " + error.to_string());
  for (const Use& use : need.uses) fail_read(progress_[use.progress_index], EIO);
}

Deadline StoreReadExecutor::latest_deadline() const {
  Deadline latest = Deadline::min();
  for (const Progress& progress : progress_) latest = std::max(latest, progress.read->deadline);
  return latest;
}

}  // namespace varve::fs
