#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "chunkstore/build/layer_builder.h"
#include "chunkstore/erofs/reader.h"
#include "tests/unit/chunkstore/build/memory_sink.h"
#include "tests/unit/chunkstore/build/test_entries.h"
#include "tests/unit/chunkstore/erofs/memory_image.h"

namespace varve::chunkstore {

enum class Contents { kStreamed, kDeferred };

/// Adds `entries` to a builder over `sink` and finishes it.
inline Result<BuiltLayer> build(MemorySink& sink, const std::vector<TestEntry>& entries,
                                Contents contents = Contents::kStreamed,
                                LayerBuilderOptions options = {}) {
  LayerBuilder builder(std::move(options), sink);
  auto deferred = std::make_shared<StringContents>();
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry entry = entries[i].entry;
    StringStream stream(entries[i].content);
    if (entry.type == EntryType::kRegular && entry.size > 0) {
      if (contents == Contents::kStreamed) {
        entry.stream = &stream;
      } else {
        entry.deferred_key = std::to_string(i);
        entry.deferred = deferred;
        deferred->set(entry.deferred_key, entries[i].content);
      }
    }
    VARVE_TRY(builder.add(std::move(entry)));
  }
  return builder.finish();
}

/// A finished layer and its image, open for reading.
struct BuiltImage {
  BuiltLayer layer;
  std::unique_ptr<erofs::MemoryImage> image;
  std::unique_ptr<erofs::Reader> reader;
  Bytes bytes;

  erofs::Inode inode(const std::string& path) const {
    auto found = reader->walk(path);
    EXPECT_TRUE(found.has_value()) << path << ": " << found.error().to_string();
    return found.value_or(erofs::Inode{});
  }
  std::string content(const std::string& path) const {
    const erofs::Inode file = inode(path);
    std::string text(file.size, '\0');
    const auto size = reader->read(file, 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
    EXPECT_TRUE(size.has_value()) << path << ": " << size.error().to_string();
    return text;
  }
  std::map<std::string, std::string> xattrs(const std::string& path) const {
    auto found = reader->xattrs(inode(path));
    EXPECT_TRUE(found.has_value()) << path << ": " << found.error().to_string();
    return found.value_or(std::map<std::string, std::string>{});
  }
  std::vector<std::string> names(const std::string& path) const {
    std::vector<std::string> names;
    const Status status =
        reader->read_directory(inode(path), 0, [&](const erofs::Dirent& entry, uint64_t) {
          if (entry.name != "." && entry.name != "..") names.push_back(entry.name);
          return true;
        });
    EXPECT_TRUE(status.has_value()) << path << ": " << status.error().to_string();
    return names;
  }
  /// Every path, "/" first.
  std::vector<std::string> paths() const {
    std::vector<std::string> found = {""};
    for (size_t i = 0; i < found.size(); ++i) {
      if (!S_ISDIR(inode(found[i]).mode)) continue;
      for (const std::string& name : names(found[i]))
        found.push_back(found[i].empty() ? name : found[i] + "/" + name);
    }
    return found;
  }
};

inline BuiltImage open_image(const MemorySink& sink, BuiltLayer layer) {
  BuiltImage built;
  built.bytes = sink.image(layer);
  built.image = std::make_unique<erofs::MemoryImage>(built.bytes);
  auto reader = erofs::Reader::open(*built.image);
  EXPECT_TRUE(reader.has_value()) << reader.error().to_string();
  built.reader = std::make_unique<erofs::Reader>(*reader);
  built.layer = std::move(layer);
  return built;
}

inline BuiltImage build_image(const std::vector<TestEntry>& entries,
                              Contents contents = Contents::kStreamed,
                              LayerBuilderOptions options = {}) {
  MemorySink sink;
  auto layer = build(sink, entries, contents, std::move(options));
  EXPECT_TRUE(layer.has_value()) << layer.error().to_string();
  return open_image(sink, std::move(*layer));
}

/// The error of a build that must fail.
inline std::string build_error(const std::vector<TestEntry>& entries,
                               LayerBuilderOptions options = {}) {
  MemorySink sink;
  const auto layer = build(sink, entries, Contents::kStreamed, std::move(options));
  EXPECT_FALSE(layer.has_value());
  if (layer) return "";
  EXPECT_EQ(layer.error().code(), ErrorCode::kInvalidArgument) << layer.error().to_string();
  return layer.error().to_string();
}

}  // namespace varve::chunkstore
