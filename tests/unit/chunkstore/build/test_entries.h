#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

/// Content of a test file as a stream.
class StringStream final : public ContentStream {
 public:
  explicit StringStream(std::string content) : content_(std::move(content)) {}
  Result<size_t> read(MutableByteView to) override {
    // Odd pieces, as pipes give them.
    const size_t size = std::min({to.size(), content_.size() - position_, size_t{70001}});
    std::copy_n(content_.data() + position_, size, to.data());
    position_ += size;
    return size;
  }

 private:
  std::string content_;
  size_t position_ = 0;
};

/// Contents of test files that are read later. Thread-safe.
class StringContents final : public DeferredContent {
 public:
  void set(const std::string& key, std::string content) { contents_[key] = std::move(content); }
  Result<std::unique_ptr<ContentStream>> open(std::string_view key) const override {
    const auto found = contents_.find(key);
    if (found == contents_.end())
      return fail(ErrorCode::kInvalidArgument, "'" + std::string(key) + "' has gone");
    return std::make_unique<StringStream>(found->second);
  }

 private:
  std::map<std::string, std::string, std::less<>> contents_;
};

/// An entry with its content, so that it can be added to several builders.
struct TestEntry {
  Entry entry;
  std::string content;
};

inline TestEntry make_entry(const std::string& path, EntryType type, uint16_t mode) {
  TestEntry test;
  test.entry.path = path;
  test.entry.type = type;
  test.entry.mode = mode;
  test.entry.mtime_s = 1'000'000'000;
  return test;
}
inline TestEntry file(const std::string& path, std::string content) {
  TestEntry test = make_entry(path, EntryType::kRegular, 0644);
  test.entry.size = content.size();
  test.content = std::move(content);
  return test;
}
inline TestEntry directory(const std::string& path, uint16_t mode = 0755) {
  return make_entry(path, EntryType::kDirectory, mode);
}
inline TestEntry symlink_to(const std::string& path, const std::string& target) {
  TestEntry test = make_entry(path, EntryType::kSymlink, 0777);
  test.entry.target = target;
  return test;
}
inline TestEntry hard_link(const std::string& path, const std::string& target) {
  TestEntry test = make_entry(path, EntryType::kHardLink, 0);
  test.entry.target = target;
  return test;
}
inline TestEntry device(const std::string& path, EntryType type, uint32_t major, uint32_t minor) {
  TestEntry test = make_entry(path, type, 0600);
  test.entry.rdev_major = major;
  test.entry.rdev_minor = minor;
  return test;
}
inline TestEntry whiteout(const std::string& path) {
  return make_entry(path, EntryType::kWhiteout, 0);
}
inline TestEntry opaque(const std::string& path) {
  return make_entry(path, EntryType::kOpaque, 0);
}

/// Bytes that do not compress and depend on `seed` only.
inline std::string noise(size_t size, uint64_t seed) {
  std::string text(size, '\0');
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (char& byte : text) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<char>(state >> 32);
  }
  return text;
}

}  // namespace varve::chunkstore
