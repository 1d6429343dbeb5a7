#include "chunkstore/layer_pack/directory_index.h"

#include <leveldb/db.h>

#include <utility>

#include "base/bytes.h"
#include "base/temp_dir.h"
#include "chunkstore/source/archive_path.h"

namespace varve::layer_pack {
namespace {

using chunkstore::DirectoryAttributes;
using chunkstore::EntryType;

// What a key is about.
constexpr char kAttributes = 'A';
constexpr char kWhiteout = 'W';  // hides the path and what is below it
constexpr char kOpaque = 'O';    // hides what is below the path
constexpr size_t kFixedBytes = 22;

std::string make_key(char kind, uint32_t layer, std::string_view path) {
  std::string key(1, kind);
  key += std::to_string(layer);
  key += '/';
  return key.append(path);
}

void append_text(Bytes& to, std::string_view text) {
  append_le<uint32_t>(to, static_cast<uint32_t>(text.size()));
  append(to, as_bytes(text));
}

std::string encode(const chunkstore::Entry& entry) {
  Bytes bytes;
  append_le<uint16_t>(bytes, entry.mode);
  append_le<uint32_t>(bytes, entry.uid);
  append_le<uint32_t>(bytes, entry.gid);
  append_le<int64_t>(bytes, entry.mtime_s);
  append_le<uint32_t>(bytes, entry.mtime_ns);
  for (const auto& [name, value] : entry.xattrs) {
    append_text(bytes, name);
    append_text(bytes, value);
  }
  return std::string(as_text(bytes));
}

std::optional<std::string> take_text(ByteView& from) {
  if (from.size() < 4) return {};
  const auto size = load_le<uint32_t>(from.data());
  if (from.size() - 4 < size) return {};
  std::string text(as_text(from.subspan(4, size)));
  from = from.subspan(4 + size);
  return text;
}

std::optional<DirectoryAttributes> decode(std::string_view text) {
  ByteView bytes = as_bytes(text);
  if (bytes.size() < kFixedBytes) return {};
  DirectoryAttributes attributes;
  attributes.mode = load_le<uint16_t>(&bytes[0]);
  attributes.uid = load_le<uint32_t>(&bytes[2]);
  attributes.gid = load_le<uint32_t>(&bytes[6]);
  attributes.mtime_s = load_le<int64_t>(&bytes[10]);
  attributes.mtime_ns = load_le<uint32_t>(&bytes[18]);
  bytes = bytes.subspan(kFixedBytes);
  while (!bytes.empty()) {
    auto name = take_text(bytes);
    auto value = take_text(bytes);
    if (!name || !value) return {};
    attributes.xattrs.emplace(std::move(*name), std::move(*value));
  }
  return attributes;
}

Status to_status(const leveldb::Status& status) {
  if (status.ok()) return {};
  return fail(ErrorCode::kIo, "temporary index of directories: " + status.ToString());
}

class LevelDbIndex final : public DirectoryIndex {
 public:
  LevelDbIndex(TempDir directory, std::unique_ptr<leveldb::DB> database)
      : directory_(std::move(directory)), database_(std::move(database)) {}

  Status record(uint32_t layer, const chunkstore::Entry& entry) override {
    if (entry.type == EntryType::kDirectory) {
      return put(make_key(kAttributes, layer, entry.path), encode(entry));
    }
    if (entry.type == EntryType::kWhiteout) return put(make_key(kWhiteout, layer, entry.path), "");
    if (entry.type == EntryType::kOpaque) return put(make_key(kOpaque, layer, entry.path), "");
    return {};
  }

  Result<Answer> find(uint32_t layer, std::string_view path) override {
    while (layer-- > 0) {
      VARVE_ASSIGN(const auto found, get(make_key(kAttributes, layer, path)));
      if (found) {
        auto attributes = decode(*found);
        if (!attributes) return fail(ErrorCode::kIo, "temporary index of directories is damaged");
        return Answer{std::move(attributes), false};
      }
      VARVE_ASSIGN(const bool is_hidden, hides(layer, path));
      if (is_hidden) return Answer{std::nullopt, true};
    }
    return Answer{};
  }

 private:
  /// Whether the marks of `layer` hide what layers below it have at `path`.
  Result<bool> hides(uint32_t layer, std::string_view path) {
    for (std::string_view at = path;; at = chunkstore::parent_path(at)) {
      VARVE_ASSIGN(const auto whiteout, get(make_key(kWhiteout, layer, at)));
      if (whiteout) return true;
      if (at != path) {
        VARVE_ASSIGN(const auto opaque, get(make_key(kOpaque, layer, at)));
        if (opaque) return true;
      }
      if (at.empty()) return false;
    }
  }

  Status put(const std::string& key, const std::string& value) {
    return to_status(database_->Put({}, key, value));
  }

  Result<std::optional<std::string>> get(const std::string& key) {
    std::string value;
    const leveldb::Status status = database_->Get({}, key, &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    VARVE_TRY(to_status(status));
    return std::optional<std::string>(std::move(value));
  }

  TempDir directory_;
  std::unique_ptr<leveldb::DB> database_;  // closed before its directory goes
};

}  // namespace

Result<std::unique_ptr<DirectoryIndex>> DirectoryIndex::create(const std::string& temp_directory) {
  VARVE_ASSIGN(TempDir directory, TempDir::create("varve-directories-", temp_directory));
  leveldb::Options options;
  options.create_if_missing = true;
  leveldb::DB* database = nullptr;
  VARVE_TRY(to_status(leveldb::DB::Open(options, directory.path(), &database)));
  return std::unique_ptr<DirectoryIndex>(
      std::make_unique<LevelDbIndex>(std::move(directory), std::unique_ptr<leveldb::DB>(database)));
}

}  // namespace varve::layer_pack
