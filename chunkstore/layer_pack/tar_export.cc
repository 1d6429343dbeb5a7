#include "chunkstore/layer_pack/tar_export.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "chunkstore/erofs/merged_walk.h"
#include "chunkstore/layer_pack/tar_writer.h"

namespace varve::layer_pack {
namespace {

namespace erofs = chunkstore::erofs;

constexpr size_t kCopyBytes = 1 << 20;

char tar_type(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFLNK:
      return '2';
    case S_IFCHR:
      return '3';
    case S_IFBLK:
      return '4';
    case S_IFDIR:
      return '5';
    case S_IFIFO:
      return '6';
    default:
      return '0';
  }
}

class TarExporter {
 public:
  TarExporter(const ImageView& view, OutputFile& to, Progress& progress)
      : tree_(view.tree()),
        writer_([&to](ByteView bytes) { return to.write(bytes); }),
        progress_(progress),
        buffer_(kCopyBytes) {}

  Result<TarExportCounts> run() {
    VARVE_ASSIGN(const erofs::MergedNode root, tree_.root());
    VARVE_TRY(erofs::walk_tree(tree_, root, "", [this](const erofs::WalkStep& step) -> Status {
      if (auto status = add(step); !status) {
        return fail(std::move(status).error(), "exporting " + quoted("/" + step.path));
      }
      return {};
    }));
    VARVE_TRY(writer_.finish());
    return counts_;
  }

 private:
  Status add(const erofs::WalkStep& step) {
    VARVE_ASSIGN(const erofs::Inode inode, tree_.inode(step.node));
    if (S_ISSOCK(inode.mode)) {
      ++counts_.skipped_sockets;
      return {};
    }
    ++counts_.entries;
    progress_.add_entries(1);
    TarEntry entry;
    entry.path = "./" + step.path;
    entry.mode = inode.mode & 07777;
    entry.uid = inode.uid;
    entry.gid = inode.gid;
    entry.mtime_s = inode.mtime_s;
    entry.mtime_ns = inode.mtime_ns;
    if (inode.nlink > 1 && !S_ISDIR(inode.mode)) {
      const auto [first, is_new] = first_names_.try_emplace(step.node.identity(), entry.path);
      if (!is_new) {
        entry.type = '1';
        entry.link_path = first->second;
        return writer_.add(entry);
      }
    }
    entry.type = tar_type(inode.mode);
    if (S_ISDIR(inode.mode) && !step.path.empty()) entry.path += '/';
    if (S_ISREG(inode.mode)) entry.size = inode.size;
    if (S_ISCHR(inode.mode) || S_ISBLK(inode.mode)) {
      entry.dev_major = gnu_dev_major(inode.rdev);
      entry.dev_minor = gnu_dev_minor(inode.rdev);
    }
    if (S_ISLNK(inode.mode)) {
      VARVE_ASSIGN(entry.link_path, tree_.reader(step.node).read_link(inode));
    }
    VARVE_ASSIGN(entry.xattrs, tree_.xattrs(step.node));
    VARVE_TRY(writer_.add(entry));
    return entry.size > 0 ? copy_content(step.node, inode) : Status{};
  }

  Status copy_content(const erofs::MergedNode& node, const erofs::Inode& inode) {
    for (uint64_t offset = 0; offset < inode.size;) {
      const size_t want = std::min<uint64_t>(inode.size - offset, buffer_.size());
      const MutableByteView to = MutableByteView(buffer_).first(want);
      VARVE_ASSIGN(const size_t got, tree_.reader(node).read(inode, offset, to));
      VARVE_TRY(writer_.write_content(to.first(got)));
      progress_.add_bytes(got);
      offset += got;
    }
    return {};
  }

  const erofs::MergedTree& tree_;
  TarWriter writer_;
  Progress& progress_;
  Bytes buffer_;
  std::map<erofs::MergedNode::Part, std::string> first_names_;
  TarExportCounts counts_;
};

}  // namespace

Result<TarExportCounts> export_tar(const ImageView& view, OutputFile& to, Progress& progress) {
  return TarExporter(view, to, progress).run();
}

}  // namespace varve::layer_pack
