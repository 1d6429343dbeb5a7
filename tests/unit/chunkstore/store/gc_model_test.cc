#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/temp_dir.h"
#include "chunkstore/build/pack_builder.h"
#include "chunkstore/build/publish.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/lease.h"
#include "chunkstore/read/chunk_reader.h"
#include "chunkstore/read/image_store.h"
#include "chunkstore/read/layer_map.h"
#include "chunkstore/read/verify.h"
#include "chunkstore/store/gc.h"
#include "tests/support/fault_store.h"
#include "tests/support/memory_store.h"
#include "tests/support/test_layer.h"

// Builders, taggers and collectors run their real code against one store, one operation of the
// store at a time, in every order with up to three switches between them. Whatever the order: what
// the builder or tagger published is whole, and they do not fail.
namespace varve::chunkstore {
namespace {

using Op = test::FaultStore::Op;

/// Lets the operations of several actors through one by one. One thread drives at a time.
class Scheduler {
 public:
  ~Scheduler() {
    for (const auto& actor : actors_) actor->thread.join();
  }

  /// @param body  What the actor does with its own view of the store.
  void add(const std::shared_ptr<Store>& store,
           std::function<void(const std::shared_ptr<Store>&)> body) {
    const size_t number = actors_.size();
    actors_.push_back(std::make_unique<Actor>());
    Actor& actor = *actors_.back();
    auto view = std::make_shared<test::FaultStore>(
        store, [this, &actor](Op op, std::string_view key) -> Status {
          pass(actor, op, key);
          return {};
        });
    actor.thread = std::thread([this, &actor, number, view, body = std::move(body)] {
      body(view);
      std::lock_guard lock(mutex_);
      actor.is_finished = true;
      changed_.notify_all();
    });
  }

  /// Runs up to `count` operations of an actor; false when it has finished before that.
  bool run(size_t number, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (!run_one(*actors_[number])) return false;
    }
    return true;
  }
  void run_to_end(size_t number) {
    while (run_one(*actors_[number])) {
    }
  }

  /// A wait inside actor `sleeper` ends, and time passes. Others must not be stopped for that long
  /// between finding that an object may go and deleting it: that is the bound collectors keep. So
  /// they are let go on to a point where they are not about to delete.
  void sleep(size_t sleeper, test::MemoryStore& store, std::chrono::seconds duration) {
    pass(*actors_[sleeper], Op::kNow, "sleep");
    for (size_t number = 0; number < actors_.size(); ++number) {
      if (number == sleeper) continue;
      while (is_about_to_delete(*actors_[number])) run_one(*actors_[number]);
    }
    store.advance_clock(duration.count());
  }

 private:
  struct Actor {
    std::thread thread;
    bool is_waiting = false;  // before the operation that follows
    bool is_granted = false;
    bool is_finished = false;
    uint64_t step_count = 0;
    Op op = Op::kNow;
    std::string key;
  };

  void pass(Actor& actor, Op op, std::string_view key) {
    std::unique_lock lock(mutex_);
    // An actor's threads take turns.
    changed_.wait(lock, [&] { return !actor.is_waiting; });
    actor.is_waiting = true;
    actor.op = op;
    actor.key = key;
    changed_.notify_all();
    changed_.wait(lock, [&] { return actor.is_granted; });
    actor.is_granted = false;
    actor.is_waiting = false;
    ++actor.step_count;
    changed_.notify_all();
  }
  /// Lets one operation through and waits until the actor stands before the next one.
  bool run_one(Actor& actor) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return actor.is_waiting || actor.is_finished; });
    if (actor.is_finished) return false;
    const uint64_t step = actor.step_count;
    actor.is_granted = true;
    changed_.notify_all();
    changed_.wait(
        lock, [&] { return actor.is_finished || (actor.step_count > step && actor.is_waiting); });
    return true;
  }
  bool is_about_to_delete(Actor& actor) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return actor.is_waiting || actor.is_finished; });
    if (actor.is_finished) return false;
    return actor.op == Op::kRemove ||
           (actor.op == Op::kGet && actor.key.starts_with("tombstones/"));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Actor>> actors_;
};

/// Says that every chunk lies in one pack.
class OnePackIndex final : public ChunkIndex {
 public:
  explicit OnePackIndex(const Digest& pack) : pack_(pack) {}
  std::optional<Digest> find_pack(const Digest&) override { return pack_; }

 private:
  const Digest pack_;
};

constexpr size_t kToTheEnd = SIZE_MAX;

class GcModelTest : public ::testing::Test {
 protected:
  using Objects = std::map<std::string, Bytes>;
  using Body = std::function<void(const std::shared_ptr<Store>&)>;

  TempDir spool_ = TempDir::create("varve-gc-model-", "/dev/shm").value();
  std::vector<Bytes> chunks_ = test::make_chunks(4, 1, 200);
  test::TestLayer old_layer_;
  Digest old_image_;

  // One schedule's.
  std::shared_ptr<test::MemoryStore> store_;
  std::unique_ptr<Scheduler> scheduler_;
  std::string failure_;

  /// A store with the image `old:1`, or, without its ref, its garbage; `sentence_age_s` seconds
  /// after it was condemned with a grace of 1000 s.
  Objects make_store(bool has_ref, std::optional<int64_t> sentence_age_s) {
    auto store = std::make_shared<test::MemoryStore>();
    old_layer_ = test::put_layer(*store, chunks_);
    old_image_ = test::put_image(*store, {old_layer_.id}, "old:1");
    if (sentence_age_s) {
      const int64_t now = store->now_s(kNoDeadline).value();
      for (const auto& [key, bytes] : store->objects()) {
        if (key.starts_with("refs/")) continue;
        test::must(store->replace(
            tombstone_key(key), encode_tombstone({now + 1000 - *sentence_age_s, 0}), kNoDeadline));
      }
    }
    if (!has_ref) test::must(store->remove("refs/old:1", kNoDeadline));
    return store->objects();
  }

  Body builder(std::vector<Bytes> chunks) {
    return [this, chunks](const std::shared_ptr<Store>& store) {
      if (auto status = build(store, chunks); !status) failure_ = status.error().to_string();
    };
  }
  Status build(const std::shared_ptr<Store>& store, const std::vector<Bytes>& chunks) {
    const auto sleep = [this](std::chrono::seconds duration) {
      scheduler_->sleep(0, *store_, duration);
    };
    PackBuilderOptions options;
    options.compression_level = 1;
    options.thread_count = 1;
    options.sleep = sleep;
    VARVE_ASSIGN(const auto builder,
                 PackBuilder::create_with_index(
                     store, options, std::make_unique<OnePackIndex>(old_layer_.packs[0])));
    LayerParts parts;
    parts.root_nid = 36;
    parts.metadata_size = chunks[0].size();
    for (const Bytes& chunk : chunks) {
      VARVE_ASSIGN(const uint64_t ordinal, builder->submit(chunk));
      VARVE_TRY(builder->drain());
      parts.chunks.push_back({builder->id(ordinal), static_cast<uint32_t>(chunk.size())});
      parts.image_size += chunk.size();
    }
    VARVE_ASSIGN(const PublishedLayer layer, builder->publish_layer(parts));
    Image image;
    image.layers = {layer.id};
    VARVE_ASSIGN(const Digest id, publish_image(*store, builder->lease(), image, sleep));
    VARVE_TRY(publish_ref(*store, builder->lease(), parse_ref("new:1").value(), id, sleep));
    return builder->lease().release();
  }

  /// `new:1` is pointed at what `old:1` points at, which then goes.
  Body tagger() {
    return [this](const std::shared_ptr<Store>& store) {
      if (auto status = retag(store); !status) failure_ = status.error().to_string();
    };
  }
  Status retag(const std::shared_ptr<Store>& store) {
    const auto sleep = [this](std::chrono::seconds duration) {
      scheduler_->sleep(0, *store_, duration);
    };
    VARVE_ASSIGN(const auto lease, Lease::take(store));
    VARVE_TRY(publish_ref(*store, *lease, parse_ref("new:1").value(), old_image_, sleep));
    VARVE_TRY(lease->release());
    return store->remove("refs/old:1", kNoDeadline);
  }

  Body collector() {
    return [this](const std::shared_ptr<Store>& store) {
      GcOptions options;
      options.grace_s = 0;
      options.monotonic_s = [this] {
        return static_cast<double>(store_->now_s(kNoDeadline).value());
      };
      const auto result = collect_garbage(*store, options);
      // It may find that too much time has passed; then it deleted nothing.
      if (!result && result.error().code() != ErrorCode::kUnavailable) {
        failure_ = result.error().to_string();
      }
    };
  }

  /// Runs actors in turns of so many operations, then all to their ends. Returns for each turn
  /// whether its actor went on after it.
  std::vector<bool> run_schedule(const Objects& objects, const std::vector<Body>& bodies,
                                 const std::vector<std::pair<size_t, size_t>>& turns) {
    store_ = std::make_shared<test::MemoryStore>(objects);
    scheduler_ = std::make_unique<Scheduler>();
    failure_.clear();
    for (const Body& body : bodies) scheduler_->add(store_, body);
    std::vector<bool> is_cut;
    for (const auto& [number, count] : turns) is_cut.push_back(scheduler_->run(number, count));
    for (size_t number = 0; number < bodies.size(); ++number) scheduler_->run_to_end(number);
    scheduler_.reset();
    return is_cut;
  }

  /// What was published is whole, now and after all garbage has gone.
  void expect_whole(const std::vector<Bytes>& chunks, const std::string& schedule) {
    ASSERT_EQ(failure_, "") << schedule;
    for (const int64_t later_s : {0, 2000, 2000}) {
      store_->advance_clock(later_s);
      GcOptions options;
      options.grace_s = 0;
      if (later_s != 0) {
        ASSERT_TRUE(collect_garbage(*store_, options)) << schedule;
      }
      const auto image = ImageStore(store_).resolve("new:1", kNoDeadline);
      ASSERT_TRUE(image) << schedule << ": " << image.error().to_string();
      const auto map = LayerMap::open(store_, image->image.layers[0], spool_.path(), kNoDeadline);
      ASSERT_TRUE(map) << schedule << ": " << map.error().to_string();
      ChunkReader reader(store_);
      for (size_t i = 0; i < chunks.size(); ++i) {
        const auto raw = reader.read(**map, (*map)->chunk(i, kNoDeadline).value(), kNoDeadline);
        ASSERT_TRUE(raw) << schedule << ": " << raw.error().to_string();
        ASSERT_EQ(*raw, chunks[i]) << schedule;
      }
    }
    const auto verified = verify_store(*store_, VerifyOptions{.is_deep = false, .thread_count = 1});
    for (const VerifyFault& fault : verified->faults) {
      ADD_FAILURE() << schedule << ": " << fault.key << ": " << fault.message;
    }
  }

  /// Two actors, every place for the first switch and every `stride`-th for the second, starting
  /// from each of them; the whole of the first goes on after that.
  void enumerate(const Objects& objects, const std::vector<Body>& bodies,
                 const std::vector<Bytes>& chunks, size_t stride) {
    size_t schedule_count = 0;
    for (const size_t first : {0, 1}) {
      const size_t second = 1 - first;
      bool is_first_cut = true;
      for (size_t p = 0; is_first_cut && !HasFatalFailure(); ++p) {
        bool is_second_cut = true;
        // The starting point moves, so that the gaps of one row are met in the next.
        for (size_t q = 1 + p % stride; is_second_cut && !HasFatalFailure(); q += stride) {
          const auto is_cut =
              run_schedule(objects, bodies, {{first, p}, {second, q}, {first, kToTheEnd}});
          ++schedule_count;
          is_first_cut = is_cut[0];
          is_second_cut = is_cut[1];
          expect_whole(chunks, "actor " + std::to_string(first) + " runs " + std::to_string(p) +
                                   " operations, the other " + std::to_string(q));
        }
      }
    }
    EXPECT_GT(schedule_count, 100u);
  }
};

TEST_F(GcModelTest, ABuilderThatEndsWhileACollectorReadsItsRootsAgain) {
  // Three switches: the collector finds the old pack unneeded; the builder relies on it; the
  // collector condemns it and is stopped at every operation while it reads roots once more; the
  // builder ends.
  std::vector<Bytes> chunks = chunks_;
  chunks[2][0] ^= 1;
  const Objects objects = make_store(false, std::nullopt);
  for (const size_t p : {4, 8, 12}) {
    for (const size_t q : {40, 70, 100}) {
      bool is_cut = true;
      for (size_t r = 1; is_cut; ++r) {
        const auto cuts = run_schedule(objects, {builder(chunks), collector()},
                                       {{1, p}, {0, q}, {1, r}, {0, kToTheEnd}});
        is_cut = cuts[2];
        expect_whole(chunks, "collector " + std::to_string(p) + ", builder " + std::to_string(q) +
                                 ", collector " + std::to_string(r));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GcModelTest, ABuilderThatReusesCondemnedChunks) {
  std::vector<Bytes> chunks = chunks_;
  chunks[2][0] ^= 1;
  enumerate(make_store(false, 1001), {builder(chunks), collector()}, chunks, 13);
}

TEST_F(GcModelTest, ABuilderThatReusesChunksNobodyHasCondemnedYet) {
  std::vector<Bytes> chunks = chunks_;
  chunks[2][0] ^= 1;
  enumerate(make_store(false, std::nullopt), {builder(chunks), collector()}, chunks, 13);
}

TEST_F(GcModelTest, ABuilderThatMakesTheVeryImageThatIsBeingDeleted) {
  enumerate(make_store(false, 1001), {builder(chunks_), collector()}, chunks_, 13);
}

TEST_F(GcModelTest, ABuilderThatMakesTheVeryImageWhoseGraceGoesOn) {
  enumerate(make_store(false, 10), {builder(chunks_), collector()}, chunks_, 19);
}

TEST_F(GcModelTest, ATaggerThatMovesAnImageToAnotherName) {
  enumerate(make_store(true, std::nullopt), {tagger(), collector()}, chunks_, 7);
  enumerate(make_store(true, 1001), {tagger(), collector()}, chunks_, 7);
}

}  // namespace
}  // namespace varve::chunkstore
