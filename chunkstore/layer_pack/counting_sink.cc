#include "chunkstore/layer_pack/counting_sink.h"

#include <utility>

namespace varve::layer_pack {
namespace {

using chunkstore::ContentStream;
using chunkstore::DeferredContent;

/// Counts what is read through it; owns the stream when it has to.
class CountingStream final : public ContentStream {
 public:
  CountingStream(ContentStream& from, Progress& progress) : from_(from), progress_(progress) {}
  CountingStream(std::unique_ptr<ContentStream> from, Progress& progress)
      : owned_(std::move(from)), from_(*owned_), progress_(progress) {}

  Result<size_t> read(MutableByteView to) override {
    VARVE_ASSIGN(const size_t got, from_.read(to));
    progress_.add_bytes(got);
    return got;
  }
  Result<uint64_t> skip_hole() override {
    VARVE_ASSIGN(const uint64_t skipped, from_.skip_hole());
    progress_.add_bytes(skipped);
    return skipped;
  }

 private:
  std::unique_ptr<ContentStream> owned_;
  ContentStream& from_;
  Progress& progress_;
};

class CountingContent final : public DeferredContent {
 public:
  CountingContent(std::shared_ptr<const DeferredContent> from, Progress& progress)
      : from_(std::move(from)), progress_(progress) {}

  Result<std::unique_ptr<ContentStream>> open(std::string_view key) const override {
    VARVE_ASSIGN(auto stream, from_->open(key));
    return std::unique_ptr<ContentStream>(
        std::make_unique<CountingStream>(std::move(stream), progress_));
  }

 private:
  std::shared_ptr<const DeferredContent> from_;
  Progress& progress_;
};

}  // namespace

Status CountingSink::add(chunkstore::Entry entry) {
  progress_.add_entries(1);
  if (entry.stream != nullptr) {
    CountingStream stream(*entry.stream, progress_);
    entry.stream = &stream;
    return inner_.add(std::move(entry));
  }
  if (entry.deferred) {
    progress_.add_expected_bytes(entry.size);
    auto& wrapper = wrapped_[entry.deferred.get()];
    if (!wrapper) wrapper = std::make_shared<CountingContent>(entry.deferred, progress_);
    entry.deferred = wrapper;
  }
  return inner_.add(std::move(entry));
}

}  // namespace varve::layer_pack
