#include "fs/fetch/ahead_reader.h"

#include <vector>

#include "fs/cache/single_flight.h"
#include "fs/layer/attached_layer.h"

namespace varve::fs {

using chunkstore::ChunkLocation;

class AheadReader::Consumer : public ChunkConsumer {
 public:
  struct Lead {
    SingleFlight::Leader flight;
    std::shared_ptr<ChunkBuffer> buffer;
  };

  Consumer(AheadReader& reader, AttachedLayer& layer) : reader_(reader), layer_(layer) {}

  std::vector<Lead>& leads() { return leads_; }

  std::optional<MutableByteView> begin(size_t index, const ChunkLocation& location) override {
    Lead& lead = leads_[index];
    const bool is_useless = !layer_.read_ahead().is_wanted(location.index) ||
                            layer_.source()->session->pool().wants_threads();
    if (is_useless && !lead.flight.has_followers_or_close()) return std::nullopt;
    lead.buffer = std::make_shared<ChunkBuffer>(location.raw_size);
    return lead.buffer->view();
  }

  void decoded(size_t index, const ChunkLocation& location) override {
    Lead& lead = leads_[index];
    layer_.stats().fetched_chunks.fetch_add(1, std::memory_order_relaxed);
    ChunkBytes bytes = std::move(lead.buffer);
    // Before the flight ends: who misses it there finds it here.
    reader_.cache_.insert_ahead(location.id, bytes, layer_.stats().ahead);
    if (lead.flight.has_followers_or_close()) {
      reader_.cache_.find(location.id);  // It is in use.
      lead.flight.land(std::move(bytes));
    }
  }

  void damaged(size_t index) override { leads_[index].buffer.reset(); }

  // Whoever waits for it tries by himself, and hears why it fails when it fails again.
  void failed(size_t index, const ChunkLocation&, const Error&) override {
    leads_[index].flight.give_up();
  }

 private:
  AheadReader& reader_;
  AttachedLayer& layer_;
  std::vector<Lead> leads_;
};

void AheadReader::run(const AheadWork& work) {
  AttachedLayer& layer = *work.layer;
  const std::shared_ptr<LayerSource> source = layer.source();
  Consumer consumer(*this, layer);
  std::vector<ChunkLocation> chunks;
  for (uint64_t i = work.chunks.first; i < work.chunks.first + work.chunks.count; ++i) {
    if (!layer.read_ahead().is_wanted(i)) continue;
    auto location = layer.chunk(i, work.deadline);
    if (!location) break;
    auto lead = source->flights.try_lead(i);
    // In this order: what another flight brings is in the cache before that flight ends.
    if (!lead || cache_.contains(location->id)) continue;
    consumer.leads().push_back({std::move(*lead), nullptr});
    chunks.push_back(std::move(*location));
  }
  layer.fetch(fetcher_, source, chunks, work.deadline, consumer);
}

}  // namespace varve::fs
