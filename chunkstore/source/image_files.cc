#include "chunkstore/source/image_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "base/file_io.h"
#include "chunkstore/source/archive_path.h"
#include "chunkstore/source/beneath.h"
#include "chunkstore/source/tar_header.h"
#include "chunkstore/source/tar_reader.h"

namespace varve::chunkstore {
namespace {

constexpr int kLinkHopCountMax = 8;
/// Files an image archive may hold: two or three a layer, plus change.
constexpr size_t kMemberCountMax = 65536;
/// Bytes of all their names and link targets.
constexpr size_t kMemberNamesBytesMax = 16 << 20;

class DirectoryFiles final : public ImageFiles {
 public:
  DirectoryFiles(UniqueFd root, std::string name)
      : root_(std::move(root)), name_(std::move(name)) {}

  const std::string& display_name() const override { return name_; }

  Result<std::optional<FileRange>> find(std::string_view name) const override {
    VARVE_ASSIGN(const std::string path, normalise_archive_path(name));
    auto fd = open_beneath(root_.get(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (!fd) {
      if (fd.error().code() == ErrorCode::kNotFound) return std::optional<FileRange>();
      return fail(std::move(fd).error(), "opening " + quoted(join_path(name_, path)));
    }
    struct stat status;
    if (::fstat(fd->get(), &status) != 0) return fail_errno("inspecting " + quoted(path));
    if (!S_ISREG(status.st_mode)) {
      return fail(ErrorCode::kInvalidArgument, quoted(path) + " is not a regular file");
    }
    return FileRange{std::make_shared<const UniqueFd>(std::move(*fd)), 0,
                     static_cast<uint64_t>(status.st_size)};
  }

 private:
  UniqueFd root_;
  std::string name_;
};

class ArchiveFiles final : public ImageFiles {
 public:
  ArchiveFiles(UniqueFd file, std::string name)
      : file_(std::make_shared<const UniqueFd>(std::move(file))), name_(std::move(name)) {}

  const std::string& display_name() const override { return name_; }

  Status index() {
    struct stat status;
    if (::fstat(file_->get(), &status) != 0) return fail_errno("inspecting " + quoted(name_));
    const auto stream = open_range(file_, 0, static_cast<uint64_t>(status.st_size));
    tar::Reader reader(*stream);
    tar::Member member;
    for (;;) {
      VARVE_ASSIGN(const bool has_member, reader.next(member));
      if (!has_member) return {};
      VARVE_ASSIGN(const std::string path, normalise_archive_path(member.path));
      name_bytes_ += path.size() + member.link_path.size();
      if (members_.size() >= kMemberCountMax || name_bytes_ > kMemberNamesBytesMax) {
        return fail(ErrorCode::kInvalidArgument, "too many members for an image archive");
      }
      if (member.type == '0' && member.data_size != member.size) {
        return fail(ErrorCode::kUnsupported, quoted(member.path) + " is stored sparse");
      }
      members_[path] = {member.type, member.data_offset, member.size, member.link_path};
    }
  }

  Result<std::optional<FileRange>> find(std::string_view name) const override {
    VARVE_ASSIGN(std::string path, normalise_archive_path(name));
    for (int hop = 0; hop <= kLinkHopCountMax; ++hop) {
      const auto found = members_.find(path);
      if (found == members_.end()) return std::optional<FileRange>();
      const Member& member = found->second;
      if (member.type == '0') return FileRange{file_, member.offset, member.size};
      if (member.type == '1') {
        VARVE_ASSIGN(path, normalise_archive_path(member.link_path));
      } else if (member.type == '2') {
        VARVE_ASSIGN(path, resolve_symlink(path, member.link_path));
      } else {
        return fail(ErrorCode::kInvalidArgument, quoted(path) + " is not a regular file");
      }
    }
    return fail(ErrorCode::kInvalidArgument, quoted(name) + " is a chain of too many links");
  }

 private:
  struct Member {
    char type = '0';
    uint64_t offset = 0;
    uint64_t size = 0;
    std::string link_path;
  };

  /// `target` relative to where the link `path` lies; `..` stops at the archive's root.
  static Result<std::string> resolve_symlink(std::string_view path, std::string_view target) {
    std::string at(parent_path(path));
    for (size_t start = 0; start < target.size();) {
      const size_t slash = std::min(target.find('/', start), target.size());
      const std::string_view component = target.substr(start, slash - start);
      start = slash + 1;
      if (component.empty() || component == ".") continue;
      at = component == ".." ? std::string(parent_path(at)) : join_path(at, component);
    }
    return normalise_archive_path(at);
  }

  std::shared_ptr<const UniqueFd> file_;
  std::string name_;
  std::map<std::string, Member, std::less<>> members_;
  size_t name_bytes_ = 0;
};

/// A regular file that begins with a tar header can be indexed where it is.
bool is_plain_tar(int fd) {
  struct stat status;
  tar::Block block;
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
         pread_some(fd, 0, block).value_or(0) == block.size() && tar::is_checksum_right(block);
}

Result<UniqueFd> spool_uncompressed(UniqueFd fd, const std::string& temp_directory) {
  VARVE_ASSIGN(const auto plain, decompress(open_descriptor(std::move(fd))));
  VARVE_ASSIGN(UniqueFd spool, open_unlinked_temp(temp_directory));
  Bytes buffer(1 << 20);
  for (;;) {
    VARVE_ASSIGN(const size_t got, plain->read(buffer));
    if (got == 0) return spool;
    if (auto status = write_all(spool.get(), ByteView(buffer).first(got)); !status) {
      return fail(std::move(status).error(),
                  "uncompressing into a temporary file in " + quoted(temp_directory));
    }
  }
}

}  // namespace

Result<std::unique_ptr<ImageFiles>> open_image_directory(const std::string& path) {
  VARVE_ASSIGN(UniqueFd root, open_file(path, O_RDONLY | O_DIRECTORY));
  return std::unique_ptr<ImageFiles>(std::make_unique<DirectoryFiles>(std::move(root), path));
}

Result<std::unique_ptr<ImageFiles>> open_image_archive(const std::string& path,
                                                       const std::string& temp_directory) {
  UniqueFd fd;
  if (path == "-") {
    fd.reset(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!fd) return fail_errno("opening standard input");
  } else {
    VARVE_ASSIGN(fd, open_file(path, O_RDONLY));
  }
  if (!is_plain_tar(fd.get())) {
    auto spool = spool_uncompressed(std::move(fd), temp_directory);
    if (!spool) return fail(std::move(spool).error(), "reading image archive " + quoted(path));
    fd = std::move(*spool);
  }
  auto files = std::make_unique<ArchiveFiles>(std::move(fd), path);
  if (auto status = files->index(); !status) {
    return fail(std::move(status).error(), "reading image archive " + quoted(path));
  }
  return std::unique_ptr<ImageFiles>(std::move(files));
}

}  // namespace varve::chunkstore
