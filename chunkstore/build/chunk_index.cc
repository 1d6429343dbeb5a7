#include "chunkstore/build/chunk_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>
#include <stdlib.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/store/closure.h"

// Keys of the database: 'c' + chunk id → pack; 'p' + pack → ids of its chunks, one after another.
namespace varve::chunkstore {
namespace {

constexpr int kSlotCount = 64;
constexpr size_t kBlockCacheBytes = 8 << 20;
constexpr size_t kWriteBufferBytes = 4 << 20;
constexpr int kBloomBitsPerKey = 10;
constexpr char kChunkTag = 'c';
constexpr char kPackTag = 'p';

using DigestSet = std::unordered_set<Digest, DigestHash>;

std::string db_key(char tag, const Digest& digest) {
  std::string key(1, tag);
  key.append(as_text(digest.view()));
  return key;
}

std::optional<Digest> to_digest(std::string_view bytes) {
  if (bytes.size() != 32) return std::nullopt;
  Digest digest;
  std::copy_n(bytes.begin(), 32, digest.bytes.begin());
  return digest;
}

Error to_error(const leveldb::Status& status, const std::string& path) {
  return Error(status.IsCorruption() ? ErrorCode::kCorruption : ErrorCode::kIo,
               "chunk index " + quoted(path) + ": " + status.ToString());
}

class LevelDbIndex : public ChunkIndex {
 public:
  LevelDbIndex(std::string path, UniqueFd lock)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        cache_(leveldb::NewLRUCache(kBlockCacheBytes)),
        filter_(leveldb::NewBloomFilterPolicy(kBloomBitsPerKey)) {}
  ~LevelDbIndex() override {
    db_.reset();
    if (is_damaged_) (void)leveldb::DestroyDB(path_, leveldb::Options());
  }

  Status open_database();
  /// Errors: kCorruption and kIo are the database's, to be answered with reset(); others the
  /// store's.
  Status update(Store& store);
  Status reset();

  std::optional<Digest> find_pack(const Digest& chunk) override {
    std::string value;
    const auto status = db_->Get(read_options_, db_key(kChunkTag, chunk), &value);
    if (status.ok()) return to_digest(value);
    if (!status.IsNotFound()) is_damaged_ = true;
    return std::nullopt;
  }

 private:
  Result<DigestSet> known_packs() const;
  Status forget(const Digest& pack);
  Status learn(Store& store, const Digest& pack);
  Status write(leveldb::WriteBatch& batch) {
    const auto status = db_->Write(leveldb::WriteOptions(), &batch);
    if (!status.ok()) return tl::unexpected(to_error(status, path_));
    return {};
  }

  const std::string path_;
  const UniqueFd lock_;
  const std::unique_ptr<leveldb::Cache> cache_;
  const std::unique_ptr<const leveldb::FilterPolicy> filter_;
  leveldb::ReadOptions read_options_;
  std::unique_ptr<leveldb::DB> db_;
  std::atomic<bool> is_damaged_{false};
};

Status LevelDbIndex::open_database() {
  leveldb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.compression = leveldb::kNoCompression;  // digests do not compress
  options.block_cache = cache_.get();
  options.filter_policy = filter_.get();
  options.write_buffer_size = kWriteBufferBytes;
  read_options_.verify_checksums = true;
  leveldb::DB* db = nullptr;
  const auto status = leveldb::DB::Open(options, path_, &db);
  if (!status.ok()) return tl::unexpected(to_error(status, path_));
  db_.reset(db);
  return {};
}

Status LevelDbIndex::reset() {
  db_.reset();
  const auto status = leveldb::DestroyDB(path_, leveldb::Options());
  if (!status.ok()) return tl::unexpected(to_error(status, path_));
  return open_database();
}

Result<DigestSet> LevelDbIndex::known_packs() const {
  DigestSet packs;
  const std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(read_options_));
  for (it->Seek(std::string(1, kPackTag)); it->Valid(); it->Next()) {
    const std::string_view key(it->key().data(), it->key().size());
    if (key.front() != kPackTag) break;
    if (const auto pack = to_digest(key.substr(1))) packs.insert(*pack);
  }
  if (!it->status().ok()) return tl::unexpected(to_error(it->status(), path_));
  return packs;
}

Status LevelDbIndex::forget(const Digest& pack) {
  std::string ids;
  const auto status = db_->Get(read_options_, db_key(kPackTag, pack), &ids);
  if (!status.ok()) return tl::unexpected(to_error(status, path_));
  leveldb::WriteBatch batch;
  for (size_t at = 0; at + 32 <= ids.size(); at += 32) {
    const std::string key = kChunkTag + ids.substr(at, 32);
    std::string holder;
    // Another pack may hold the chunk as well, and be the one that is remembered.
    if (db_->Get(read_options_, key, &holder).ok() && holder == as_text(pack.view())) {
      batch.Delete(key);
    }
  }
  batch.Delete(db_key(kPackTag, pack));
  return write(batch);
}

Status LevelDbIndex::learn(Store& store, const Digest& pack) {
  auto entries = read_pack_index(store, pack, kNoDeadline);
  if (!entries) {
    const ErrorCode code = entries.error().code();
    // Deleted meanwhile, damaged or of a newer format: nothing to reuse. `verify` reports damage.
    if (code == ErrorCode::kNotFound || code == ErrorCode::kCorruption ||
        code == ErrorCode::kUnsupported) {
      return {};
    }
    return tl::unexpected(std::move(entries).error());
  }
  leveldb::WriteBatch batch;
  std::string ids;
  for (const PackEntry& entry : *entries) {
    batch.Put(db_key(kChunkTag, entry.id), std::string(as_text(pack.view())));
    ids.append(as_text(entry.id.view()));
  }
  batch.Put(db_key(kPackTag, pack), ids);
  return write(batch);
}

Status LevelDbIndex::update(Store& store) {
  VARVE_ASSIGN(DigestSet gone, known_packs());
  std::vector<Digest> fresh;
  const auto visit = [&](const std::string& key, const ObjectInfo&) -> Status {
    const auto pack = digest_of_key(key);
    if (pack && pack_key(*pack) == key && gone.erase(*pack) == 0) fresh.push_back(*pack);
    return {};
  };
  VARVE_TRY(store.list("packs/", visit, kNoDeadline));
  for (const Digest& pack : gone) VARVE_TRY(forget(pack));
  for (const Digest& pack : fresh) VARVE_TRY(learn(store, pack));
  return {};
}

/// The first slot that no other builder holds.
Result<std::unique_ptr<LevelDbIndex>> lock_slot(const std::string& directory) {
  for (int slot = 0; slot < kSlotCount; ++slot) {
    const std::string path = directory + "/" + std::to_string(slot);
    VARVE_ASSIGN(UniqueFd lock, open_file(path + ".lock", O_RDWR | O_CREAT, 0600));
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      return std::make_unique<LevelDbIndex>(path, std::move(lock));
    }
    if (errno != EWOULDBLOCK) return fail_errno("locking " + quoted(path + ".lock"));
  }
  return fail(ErrorCode::kBusy, fmt::format("{} builders use the chunk indexes in {} already",
                                            kSlotCount, quoted(directory)));
}

bool is_database_error(const Error& error) {
  return error.code() == ErrorCode::kCorruption || error.code() == ErrorCode::kIo;
}

}  // namespace

Result<std::unique_ptr<ChunkIndex>> ChunkIndex::open(Store& store, const std::string& directory) {
  const auto open = [&]() -> Result<std::unique_ptr<ChunkIndex>> {
    VARVE_TRY(make_directories(directory, 0700));
    VARVE_ASSIGN(auto index, lock_slot(directory));
    if (!index->open_database()) VARVE_TRY(index->reset());
    auto updated = index->update(store);
    if (!updated && is_database_error(updated.error())) {
      VARVE_TRY(index->reset());
      updated = index->update(store);
    }
    if (!updated) return tl::unexpected(std::move(updated).error());
    return index;
  };
  auto index = open();
  if (!index) {
    return fail(std::move(index).error(), "opening the chunk index in " + quoted(directory));
  }
  return index;
}

std::string default_index_directory(const Store& store) {
  const auto from_environment = [](const char* name) -> std::string {
    const char* value = ::getenv(name);
    return value != nullptr && *value == '/' ? value : "";
  };
  std::string cache = from_environment("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = from_environment("HOME");
    cache = home.empty() ? "/var/cache" : home + "/.cache";
  }
  return cache + "/varve/index/" + store.id();
}

}  // namespace varve::chunkstore
