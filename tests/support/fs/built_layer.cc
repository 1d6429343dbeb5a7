#include "tests/support/fs/built_layer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "base/check.h"
#include "base/file_io.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/source/directory_source.h"

namespace varve::test {
namespace {

namespace stdfs = std::filesystem;

class KeepingSink : public chunkstore::ChunkSink {
 public:
  Result<uint64_t> submit(Bytes raw) override {
    const Digest id = sha256(raw);
    ids_.push_back(id);
    chunks_.emplace(id, std::move(raw));
    return ids_.size() - 1;
  }
  Status drain() override { return {}; }
  Digest id(uint64_t ordinal) const override { return ids_[ordinal]; }
  const Bytes& chunk(const Digest& id) const { return chunks_.at(id); }

 private:
  std::vector<Digest> ids_;
  std::map<Digest, Bytes> chunks_;
};

void write_file(const std::string& path, ByteView bytes, mode_t mode = 0644) {
  const UniqueFd fd = open_file(path, O_RDWR | O_CREAT | O_EXCL, mode).value();
  must(write_all(fd.get(), bytes));
}

void set_time(const std::string& path, int64_t seconds, long nanoseconds) {
  const timespec times[2] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
  VARVE_CHECK_OP(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), ==, 0);
}

std::map<std::string, std::string> xattrs_of(const std::string& path) {
  std::map<std::string, std::string> result;
  std::string names(64 << 10, '\0');
  const ssize_t size = llistxattr(path.c_str(), names.data(), names.size());
  if (size < 0) return {{"llistxattr", std::strerror(errno)}};
  for (const char* name = names.data(); name < names.data() + size; name += strlen(name) + 1) {
    std::string value(64 << 10, '\0');
    const ssize_t value_size = lgetxattr(path.c_str(), name, value.data(), value.size());
    result[name] = value_size < 0 ? "error " + std::to_string(errno)
                                  : value.substr(0, static_cast<size_t>(value_size));
  }
  return result;
}

std::string content_of(const std::string& path) {
  const auto fd = open_file(path, O_RDONLY);
  if (!fd) return fd.error().to_string();
  Sha256 hash;
  // Made once: thousands of small files are hashed, and sanitizers make fresh memory dear.
  static Bytes buffer(1 << 20);
  for (uint64_t offset = 0;;) {
    const auto size = pread_some(fd->get(), offset, buffer);
    if (!size) return size.error().to_string();
    if (*size == 0) return hash.finish().hex();
    hash.update(ByteView(buffer).first(*size));
    offset += *size;
  }
}

std::string describe(const std::string& path) {
  struct stat st;
  if (lstat(path.c_str(), &st)) return std::string("lstat: ") + std::strerror(errno);
  std::string text = "mode " + std::to_string(st.st_mode) + " uid " + std::to_string(st.st_uid) +
                     " gid " + std::to_string(st.st_gid) + " mtime " +
                     std::to_string(st.st_mtim.tv_sec) + "." + std::to_string(st.st_mtim.tv_nsec) +
                     " rdev " + std::to_string(st.st_rdev);
  // Sizes and link counts of directories are the format's, not the source's.
  if (!S_ISDIR(st.st_mode)) {
    text += " nlink " + std::to_string(st.st_nlink) + " size " + std::to_string(st.st_size);
  }
  for (const auto& [name, value] : xattrs_of(path)) {
    text += " " + name + "=" + sha256(as_bytes(value)).short_hex();
  }
  if (S_ISLNK(st.st_mode)) text += " -> " + stdfs::read_symlink(path).string();
  if (S_ISREG(st.st_mode)) text += " " + content_of(path);
  return text;
}

std::map<std::string, std::string> describe_tree(const std::string& root) {
  std::map<std::string, std::string> result{{"", describe(root)}};
  for (const auto& entry : stdfs::recursive_directory_iterator(root)) {
    result[entry.path().lexically_relative(root).string()] = describe(entry.path().string());
  }
  return result;
}

void make_odd_files(const std::string& directory) {
  write_file(directory + "/empty", {});
  write_file(directory + "/setuid", as_bytes("#!/bin/sh\n"), 0644);
  VARVE_CHECK_OP(chmod((directory + "/setuid").c_str(), 06755), ==, 0);
  VARVE_CHECK_OP(link((directory + "/setuid").c_str(), (directory + "/setuid-too").c_str()), ==, 0);
  VARVE_CHECK_OP(symlink("../elsewhere", (directory + "/link").c_str()), ==, 0);
  VARVE_CHECK_OP(mknod((directory + "/null").c_str(), S_IFCHR | 0666, makedev(1, 3)), ==, 0);
  VARVE_CHECK_OP(mknod((directory + "/fifo").c_str(), S_IFIFO | 0600, 0), ==, 0);
  VARVE_CHECK_OP(lchown((directory + "/empty").c_str(), 70000, 4294967294U), ==, 0);
  VARVE_CHECK_OP(setxattr((directory + "/empty").c_str(), "user.note", "bytes", 5, 0), ==, 0);
  VARVE_CHECK_OP(setxattr((directory + "/empty").c_str(), "trusted.mark", "t", 1, 0), ==, 0);
  set_time(directory + "/empty", -5, 123456789);
  set_time(directory + "/link", 1'700'000'000, 1);
  const UniqueFd sparse = open_file(directory + "/sparse", O_RDWR | O_CREAT).value();
  must(pwrite_all(sparse.get(), 5 << 20, as_bytes("after a hole")));
  VARVE_CHECK_OP(ftruncate(sparse.get(), 9 << 20), ==, 0);
}

}  // namespace

TestLayer put_directory(chunkstore::Store& store, const std::string& directory,
                        size_t chunks_per_pack) {
  KeepingSink sink;
  chunkstore::LayerBuilder builder({}, sink);
  const auto source = chunkstore::open_directory_source(directory, {});
  must(source ? Status() : tl::unexpected(source.error()));
  must((*source)->read_into(builder));
  auto built = builder.finish();
  must(built ? Status() : tl::unexpected(built.error()));
  TestLayer layer;
  for (const auto& chunk : built->chunks) layer.chunks.push_back(sink.chunk(chunk.id));
  for (const Bytes& chunk : layer.chunks) append(layer.image, chunk);
  const auto encoded = chunkstore::encode_layer(built->image_size, built->metadata_size,
                                                built->root_nid, built->chunks);
  must(encoded ? Status() : tl::unexpected(encoded.error()));
  layer.id = encoded->id;
  store.put_if_absent(chunkstore::layer_key(layer.id), encoded->object, kNoDeadline).value();
  put_placement(store, layer, chunks_per_pack);
  return layer;
}

Bytes make_noise(size_t bytes, uint32_t seed) {
  std::mt19937_64 random(seed);
  Bytes noise(align_up(bytes, 8));
  for (size_t i = 0; i < noise.size(); i += 8) store_le<uint64_t>(noise.data() + i, random());
  noise.resize(bytes);
  return noise;
}

void make_tree(const std::string& directory, uint32_t seed, size_t wide_count) {
  std::mt19937 random(seed);
  must(make_directories(directory + "/large"));
  must(make_directories(directory + "/small/deep/er"));
  must(make_directories(directory + "/wide"));
  must(make_directories(directory + "/odd"));
  write_file(directory + "/large/noise", make_noise(3'000'001, seed));
  Bytes text;
  while (text.size() < 5'000'000) append(text, as_bytes("line " + std::to_string(random()) + "\n"));
  write_file(directory + "/large/text", text);
  for (int i = 0; i < 200; ++i) {
    const std::string where = i % 2 == 0 ? "/small/" : "/small/deep/er/";
    write_file(directory + where + "file" + std::to_string(i),
               make_noise(1 + random() % 20'000, seed + static_cast<uint32_t>(i)));
  }
  for (size_t i = 0; i < wide_count; ++i) {
    const std::string name = "an-entry-of-a-wide-directory-" + std::to_string(i);
    const UniqueFd fd = open_file(directory + "/wide/" + name, O_RDWR | O_CREAT).value();
    must(write_all(fd.get(), as_bytes(name)));
  }
  make_odd_files(directory + "/odd");
  VARVE_CHECK_OP(chmod((directory + "/small/deep").c_str(), 01777), ==, 0);
}

std::vector<std::string> compare_trees(const std::string& expected, const std::string& actual) {
  const auto wanted = describe_tree(expected);
  const auto found = describe_tree(actual);
  std::vector<std::string> differences;
  for (const auto& [path, text] : wanted) {
    const auto other = found.find(path);
    if (other == found.end()) {
      differences.push_back("'" + path + "' is missing");
    } else if (other->second != text) {
      differences.push_back("'" + path + "': expected " + text + ", found " + other->second);
    }
  }
  for (const auto& [path, text] : found) {
    if (!wanted.contains(path)) differences.push_back("'" + path + "' should not exist");
  }
  return differences;
}

}  // namespace varve::test
