#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

/// Byte-string keys by which paths are sorted. '/' becomes NUL, which no path holds, so that it
/// sorts before every other byte and a directory's entries follow it before its neighbours.
namespace varve::chunkstore {

inline std::string path_to_key(std::string_view path) {
  std::string key(path);
  std::replace(key.begin(), key.end(), '/', '\0');
  return key;
}
inline std::string key_to_path(std::string_view key) {
  std::string path(key);
  std::replace(path.begin(), path.end(), '\0', '/');
  return path;
}

/// Whether `key` is that of a path below the directory with `directory_key`.
inline bool is_below(std::string_view key, std::string_view directory_key) {
  if (directory_key.empty()) return !key.empty();
  return key.size() > directory_key.size() + 1 && key.starts_with(directory_key) &&
         key[directory_key.size()] == '\0';
}

template <class T>
void append_be(std::string& to, T value) {
  for (int shift = 8 * (static_cast<int>(sizeof(T)) - 1); shift >= 0; shift -= 8)
    to.push_back(static_cast<char>(value >> shift));
}
template <class T>
T load_be(std::string_view from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>((value << 8) | static_cast<uint8_t>(from[i]));
  return value;
}

/// Preorder of the tree, then arrival: key, two NULs (no component is empty), sequence number.
inline std::string arrival_key(std::string_view path, uint32_t sequence) {
  std::string key = path_to_key(path);
  key.append(2, '\0');
  append_be(key, sequence);
  return key;
}
inline std::string_view arrival_path_key(std::string_view key) {
  return key.substr(0, key.size() - 6);
}
inline uint32_t arrival_sequence(std::string_view key) {
  return load_be<uint32_t>(key.substr(key.size() - 4));
}

/// Breadth-first order of the tree: depth, then the path's key.
inline std::string level_key(uint32_t depth, std::string_view path_key) {
  std::string key;
  key.reserve(4 + path_key.size());
  append_be(key, depth);
  key += path_key;
  return key;
}

}  // namespace varve::chunkstore
