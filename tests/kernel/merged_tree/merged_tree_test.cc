// MergedTree against the kernel: random stacks of EROFS layers with whiteouts and opaque marks,
// mounted with OverlayFS and read by MergedTree, must show the same tree.
#include "chunkstore/erofs/merged_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "chunkstore/erofs/file_image_source.h"

namespace varve::chunkstore::erofs {
namespace {

namespace fs = std::filesystem;
using Tree = std::map<std::string, std::string>;  // path → what it is

constexpr int kSkipped = 77;
constexpr int kLayerCount = 4;

#define ASSERT_SYSCALL(call) ASSERT_EQ((call), 0) << #call << ": " << std::strerror(errno)

void set_xattr(const std::string& path, const std::string& name, const std::string& value) {
  ASSERT_SYSCALL(::lsetxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0));
}

/// A mount that goes before the directory that holds it.
class ScopedMount {
 public:
  ScopedMount(const std::string& source, std::string target, const char* type,
              const std::string& options)
      : target_(std::move(target)) {
    EXPECT_EQ(::mkdir(target_.c_str(), 0755), 0) << target_ << ": " << std::strerror(errno);
    EXPECT_EQ(::mount(source.c_str(), target_.c_str(), type, MS_RDONLY, options.c_str()), 0)
        << target_ << ": " << std::strerror(errno);
  }
  ~ScopedMount() { ::umount2(target_.c_str(), MNT_DETACH); }
  ScopedMount(const ScopedMount&) = delete;
  ScopedMount& operator=(const ScopedMount&) = delete;

 private:
  std::string target_;
};

class LayerMaker {
 public:
  LayerMaker(uint32_t seed, int layer)
      : random_(seed * 100 + static_cast<uint32_t>(layer)), layer_(layer) {}

  /// Few names, so that layers meet; every kind of thing under every name.
  void fill(const std::string& directory, int depth) {
    for (const char* name : {"a", "b", "c", "dd"}) {
      const std::string path = directory + "/" + name;
      switch (random_() % (depth == 0 ? 5 : 7)) {
        case 0:
          std::ofstream(path) << "layer " << layer_;
          break;
        case 1:
          ASSERT_SYSCALL(::symlink("x", path.c_str()));
          break;
        case 2:
          if (layer_ == 0) break;
          ASSERT_SYSCALL(::mknod(path.c_str(), S_IFCHR, 0));
          // Without this mark overlayfs lists the whiteouts of a directory that is merged with
          // nothing below it (ovl_get_inode() in fs/overlayfs/inode.c).
          set_xattr(directory, "trusted.overlay.origin", "");
          break;
        case 3:
        case 4:
          break;
        default:
          make_directory(path, depth);
          break;
      }
    }
  }

 private:
  void make_directory(const std::string& path, int depth) {
    ASSERT_SYSCALL(::mkdir(path.c_str(), static_cast<mode_t>(0700 + layer_)));
    if (layer_ > 0 && random_() % 3 == 0) set_xattr(path, "trusted.overlay.opaque", "y");
    set_xattr(path, "user.layer", std::to_string(layer_));
    // Content, escaped as overlayfs asks for.
    set_xattr(path, "trusted.overlay.overlay.opaque", "y");
    fill(path, depth - 1);
  }

  std::mt19937 random_;
  int layer_;
};

std::string kernel_xattrs(const std::string& path) {
  char names[4096];
  std::map<std::string, std::string> found;
  const ssize_t size = ::llistxattr(path.c_str(), names, sizeof(names));
  EXPECT_GE(size, 0) << path << std::strerror(errno);
  for (const char* name = names; name < names + size; name += std::strlen(name) + 1) {
    char value[256];
    const ssize_t length = ::lgetxattr(path.c_str(), name, value, sizeof(value));
    EXPECT_GE(length, 0) << path << " " << name << std::strerror(errno);
    found[name] = std::string(value, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  }
  std::string text;
  for (const auto& [name, value] : found) text += " " + name + "=" + value;
  return text;
}

Tree kernel_tree(const std::string& root) {
  Tree tree;
  tree[""] = "root" + kernel_xattrs(root);
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string path = entry.path();
    struct stat status;
    EXPECT_EQ(::lstat(path.c_str(), &status), 0);
    std::string text = std::to_string(status.st_mode);
    if (S_ISREG(status.st_mode)) text += " " + std::string(as_text(read_file(path, 100).value()));
    if (!S_ISLNK(status.st_mode)) text += kernel_xattrs(path);
    tree[path.substr(root.size() + 1)] = text;
  }
  return tree;
}

std::string our_xattrs(const MergedTree& merged, const MergedNode& node) {
  std::string text;
  const auto xattrs = merged.xattrs(node);
  EXPECT_TRUE(xattrs) << xattrs.error().to_string();
  for (const auto& [name, value] : *xattrs) text += " " + name + "=" + value;
  return text;
}

void add_directory(const MergedTree& merged, const MergedNode& directory, const std::string& path,
                   Tree& tree) {
  std::string last;
  const Status status =
      merged.read_directory(directory, [&](const std::string& name, MergedNode child) -> Status {
        EXPECT_LT(last, name) << "names ascend";
        last = name;
        const std::string child_path = path.empty() ? name : path + "/" + name;
        const auto looked_up = merged.lookup(directory, name);
        EXPECT_TRUE(looked_up && *looked_up && (*looked_up)->parts == child.parts) << child_path;
        VARVE_ASSIGN(const Inode inode, merged.inode(child));
        std::string text = std::to_string(inode.mode);
        if (S_ISREG(inode.mode)) {
          Bytes content(inode.size);
          VARVE_TRY(merged.reader(child).read(inode, 0, content));
          text += " " + std::string(as_text(content));
        }
        if (!S_ISLNK(inode.mode)) text += our_xattrs(merged, child);
        tree[child_path] = text;
        if (child.is_directory()) add_directory(merged, child, child_path, tree);
        return {};
      });
  EXPECT_TRUE(status) << status.error().to_string();
}

class MergedTreeTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(MergedTreeTest, ShowsWhatOverlayfsShows) {
  const TempDir dir = TempDir::create("varve-merged-tree-", "/var/tmp").value();
  const std::string mountpoint = dir.path() + "/merged";
  std::vector<std::unique_ptr<FileImageSource>> images;
  std::vector<Reader> readers;
  std::vector<std::unique_ptr<ScopedMount>> mounts;
  std::string lower;
  for (int layer = 0; layer < kLayerCount; ++layer) {
    const std::string base = dir.path() + "/" + std::to_string(layer);
    ASSERT_SYSCALL(::mkdir(base.c_str(), 0755));
    LayerMaker(GetParam(), layer).fill(base, 3);
    ASSERT_EQ(
        std::system(("mkfs.erofs --quiet " + base + ".erofs " + base + " >/dev/null").c_str()), 0);
    mounts.push_back(std::make_unique<ScopedMount>(base + ".erofs", base + ".mount", "erofs", ""));
    lower = base + ".mount" + (lower.empty() ? "" : ":") + lower;
    auto image = FileImageSource::open(base + ".erofs");
    ASSERT_TRUE(image) << image.error().to_string();
    images.push_back(std::move(*image));
    readers.push_back(Reader::open(*images.back()).value());
  }
  const ScopedMount overlay("overlay", mountpoint, "overlay", "lowerdir=" + lower);
  if (HasFailure()) return;
  const Tree expected = kernel_tree(mountpoint);

  std::vector<const Reader*> layers;
  for (const Reader& reader : readers) layers.push_back(&reader);
  const MergedTree merged(layers);
  const MergedNode root = merged.root().value();
  Tree got;
  got[""] = "root" + our_xattrs(merged, root);
  add_directory(merged, root, "", got);
  EXPECT_EQ(got, expected);
  for (const auto& [path, text] : expected) EXPECT_TRUE(merged.walk(path)) << path;
  EXPECT_FALSE(merged.walk("no-such-name"));
}

INSTANTIATE_TEST_SUITE_P(Seeds, MergedTreeTest, ::testing::Range(0u, 24u));

}  // namespace
}  // namespace varve::chunkstore::erofs

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (::geteuid() != 0) {
    std::puts("skipped: needs root (mounts, devices, trusted xattrs)");
    return varve::chunkstore::erofs::kSkipped;
  }
  // Mounts of a test that fails go with its namespace.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    std::perror("making a private mount namespace");
    return 1;
  }
  return RUN_ALL_TESTS();
}
