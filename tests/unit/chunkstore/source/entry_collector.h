#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

/// An EntrySink that keeps everything, content included, so that tests can compare whole trees.
class EntryCollector final : public EntrySink {
 public:
  Status add(Entry entry) override {
    std::string content;
    if (entry.stream != nullptr) {
      VARVE_TRY(read_all(*entry.stream, content));
    } else if (entry.deferred) {
      VARVE_ASSIGN(auto stream, entry.deferred->open(entry.deferred_key));
      VARVE_TRY(read_all(*stream, content));
    }
    if (content.size() != entry.size) {
      return fail(ErrorCode::kInternal, entry.path + ": size and content differ");
    }
    contents[entry.path] = content;
    entry.stream = nullptr;
    entry.deferred.reset();
    entries.push_back(std::move(entry));
    return {};
  }

  const Entry* find(const std::string& path) const {
    for (const Entry& entry : entries) {
      if (entry.path == path) return &entry;
    }
    return nullptr;
  }

  /// One line a path, everything that counts in it; a hard link shows what it leads to and the
  /// first name (bytewise) of its group, so that sources may choose any name as the real one.
  std::map<std::string, std::string> describe() const {
    std::map<std::string, const Entry*> by_path;
    for (const Entry& entry : entries) by_path[entry.path] = &entry;
    std::map<const Entry*, std::string> first_names;
    for (const auto& [path, entry] : by_path) {
      first_names.try_emplace(resolve(by_path, entry), path);
    }
    std::map<std::string, std::string> lines;
    for (const auto& [path, entry] : by_path) {
      const Entry& real = *resolve(by_path, entry);
      std::string line =
          "type " + std::to_string(static_cast<int>(real.type)) + " mode " +
          std::to_string(real.mode) + " ids " + std::to_string(real.uid) + ":" +
          std::to_string(real.gid) + " mtime " + std::to_string(real.mtime_s) + "." +
          std::to_string(real.mtime_ns) + " rdev " + std::to_string(real.rdev_major) + ":" +
          std::to_string(real.rdev_minor) + " target " + varve::quoted(real.target) + " content " +
          std::to_string(std::hash<std::string>()(contents.at(real.path))) + " size " +
          std::to_string(real.size) + " first " + varve::quoted(first_names.at(&real));
      for (const auto& [name, value] : real.xattrs)
        line += " " + varve::quoted(name) + "=" + varve::quoted(value);
      lines[path] = line;
    }
    return lines;
  }

  std::vector<Entry> entries;
  std::map<std::string, std::string> contents;

 private:
  static const Entry* resolve(const std::map<std::string, const Entry*>& by_path,
                              const Entry* entry) {
    return entry->type == EntryType::kHardLink ? by_path.at(entry->target) : entry;
  }

  static Status read_all(ContentStream& stream, std::string& to) {
    Bytes buffer(100'000);
    for (;;) {
      VARVE_ASSIGN(const uint64_t hole, stream.skip_hole());
      to.append(hole, '\0');
      VARVE_ASSIGN(const size_t got, stream.read(buffer));
      if (got == 0 && hole == 0) return {};
      to.append(as_text(ByteView(buffer).first(got)));
    }
  }
};

}  // namespace varve::chunkstore
