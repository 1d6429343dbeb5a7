#include "chunkstore/source/tar_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <optional>

#include "base/file_io.h"
#include "chunkstore/source/archive_path.h"
#include "chunkstore/source/posix_acl.h"
#include "chunkstore/source/tar_reader.h"

namespace varve::chunkstore {
namespace {

constexpr std::string_view kWhiteoutPrefix = ".wh.";
constexpr std::string_view kWhiteoutMetaPrefix = ".wh..wh.";
constexpr std::string_view kOpaqueName = ".wh..wh..opq";

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<uint32_t> to_u32(uint64_t value, const char* what) {
  if (value > std::numeric_limits<uint32_t>::max()) {
    return invalid(std::string(what) + " " + std::to_string(value) + " is larger than 4294967295");
  }
  return static_cast<uint32_t>(value);
}

std::optional<EntryType> entry_type(char type) {
  switch (type) {
    case '0':
      return EntryType::kRegular;
    case '1':
      return EntryType::kHardLink;
    case '2':
      return EntryType::kSymlink;
    case '3':
      return EntryType::kCharDevice;
    case '4':
      return EntryType::kBlockDevice;
    case '5':
      return EntryType::kDirectory;
    case '6':
      return EntryType::kFifo;
    default:
      return {};
  }
}

/// True when `path` is a whiteout-format name: `entry` becomes the mark, or (aufs notes) `is_note`.
Status apply_whiteout_name(Entry& entry, bool& is_note) {
  is_note = false;
  const std::string_view path = entry.path;
  for (std::string_view at = parent_path(path); !at.empty(); at = parent_path(at)) {
    const std::string_view component = base_name(at);
    if (component.starts_with(kWhiteoutMetaPrefix)) {
      is_note = true;
      return {};
    }
    if (component.starts_with(kWhiteoutPrefix)) return invalid("lies below a whiteout name");
  }
  const std::string_view name = base_name(path);
  if (!name.starts_with(kWhiteoutPrefix)) return {};
  Entry mark;
  mark.path = std::string(parent_path(path));
  if (name == kOpaqueName) {
    mark.type = EntryType::kOpaque;
  } else if (name.starts_with(kWhiteoutMetaPrefix)) {
    is_note = true;
    return {};
  } else {
    const std::string_view hidden = name.substr(kWhiteoutPrefix.size());
    if (hidden.empty() || hidden == "." || hidden == "..") return invalid("hides no possible name");
    mark.type = EntryType::kWhiteout;
    mark.path = join_path(mark.path, hidden);
  }
  entry = std::move(mark);
  return {};
}

class TarSource final : public EntrySource {
 public:
  TarSource(std::unique_ptr<ByteStream> from, std::string name, TarMode mode)
      : from_(std::move(from)), name_(std::move(name)), mode_(mode) {}

  Status read_into(EntrySink& sink) override {
    if (auto status = read_all(sink); !status) {
      return fail(std::move(status).error(), "reading tar " + quoted(name_));
    }
    return {};
  }

 private:
  Status read_all(EntrySink& sink) {
    VARVE_ASSIGN(const auto plain, decompress(std::move(from_)));
    tar::Reader reader(*plain);
    tar::Member member;
    for (;;) {
      VARVE_ASSIGN(const bool has_member, reader.next(member));
      if (!has_member) return {};
      VARVE_TRY(add_member(reader, member, sink));
    }
  }

  Status add_member(tar::Reader& reader, tar::Member& member, EntrySink& sink) {
    bool is_note = false;
    auto entry = make_entry(member, is_note);
    if (!entry) return fail(std::move(entry).error(), quoted(member.path));
    if (is_note) return {};
    if (entry->type == EntryType::kRegular && entry->size > 0) entry->stream = &reader.content();
    return sink.add(std::move(*entry));
  }

  Result<Entry> make_entry(tar::Member& member, bool& is_note) {
    Entry entry;
    VARVE_ASSIGN(entry.path, normalise_archive_path(member.path));
    if (mode_ == TarMode::kOciLayer) {
      VARVE_TRY(apply_whiteout_name(entry, is_note));
      if (is_note || entry.type == EntryType::kWhiteout || entry.type == EntryType::kOpaque) {
        return entry;
      }
    }
    const auto type = entry_type(member.type);
    if (!type) {
      return fail(ErrorCode::kUnsupported,
                  "tar member of unsupported type " + quoted(std::string(1, member.type)));
    }
    entry.type = *type;
    if (entry.path.empty() && entry.type != EntryType::kDirectory) {
      return invalid("the root must be a directory");
    }
    VARVE_TRY(fill_attributes(member, entry));
    VARVE_TRY(fill_links(member, entry));
    VARVE_TRY(fill_xattrs(member, entry));
    return entry;
  }

  static Status fill_attributes(const tar::Member& member, Entry& entry) {
    entry.mode = member.mode;
    VARVE_ASSIGN(entry.uid, to_u32(member.uid, "uid"));
    VARVE_ASSIGN(entry.gid, to_u32(member.gid, "gid"));
    entry.mtime_s = member.mtime.seconds;
    entry.mtime_ns = member.mtime.nanoseconds;
    entry.size = member.size;
    VARVE_ASSIGN(entry.rdev_major, to_u32(member.dev_major, "device major"));
    VARVE_ASSIGN(entry.rdev_minor, to_u32(member.dev_minor, "device minor"));
    if (entry.type == EntryType::kCharDevice && entry.rdev_major == 0 && entry.rdev_minor == 0) {
      return invalid("character device 0:0 is an overlayfs whiteout, not content");
    }
    return {};
  }

  static Status fill_links(tar::Member& member, Entry& entry) {
    if (entry.type == EntryType::kHardLink) {
      auto target = normalise_archive_path(member.link_path);
      if (!target) return fail(std::move(target).error(), "hard link target");
      entry.target = std::move(*target);
    } else if (entry.type == EntryType::kSymlink) {
      if (member.link_path.empty() || member.link_path.size() > kLinkTargetBytesMax ||
          member.link_path.find('\0') != std::string::npos) {
        return invalid("symlink target is empty, holds a NUL byte or is longer than 4095 bytes");
      }
      entry.target = std::move(member.link_path);
    }
    return {};
  }

  /// An xattr of a hard link is that of the file it names.
  static Status fill_xattrs(tar::Member& member, Entry& entry) {
    if (entry.type == EntryType::kHardLink) return {};
    entry.xattrs = std::move(member.xattrs);
    // GNU tar --acls --xattrs writes both forms, and names into the text even with --numeric-owner.
    const bool has_access = entry.xattrs.contains(std::string(kAclAccessXattr));
    const bool has_default = entry.xattrs.contains(std::string(kAclDefaultXattr));
    if (!member.acl_access.empty() && !has_access && entry.type != EntryType::kSymlink) {
      auto acl = parse_acl_text(member.acl_access);
      if (!acl) return fail(std::move(acl).error(), "access ACL");
      // As setting the ACL on extraction would: its entries for owner, mask and other are the mode.
      entry.mode = static_cast<uint16_t>((entry.mode & 07000) | acl->mode_bits);
      if (!acl->is_minimal) entry.xattrs.emplace(kAclAccessXattr, acl->xattr);
    }
    if (!member.acl_default.empty() && !has_default) {
      if (entry.type != EntryType::kDirectory) {
        return invalid("has a default ACL but is no directory");
      }
      auto acl = parse_acl_text(member.acl_default);
      if (!acl) return fail(std::move(acl).error(), "default ACL");
      entry.xattrs.emplace(kAclDefaultXattr, acl->xattr);
    }
    return {};
  }

  std::unique_ptr<ByteStream> from_;
  const std::string name_;
  const TarMode mode_;
};

}  // namespace

std::unique_ptr<EntrySource> make_tar_source(std::unique_ptr<ByteStream> from, std::string name,
                                             TarMode mode) {
  return std::make_unique<TarSource>(std::move(from), std::move(name), mode);
}

Result<std::unique_ptr<EntrySource>> open_tar_source(const std::string& path, TarMode mode) {
  UniqueFd fd;
  if (path == "-") {
    fd.reset(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!fd) return fail_errno("opening standard input");
  } else {
    VARVE_ASSIGN(fd, open_file(path, O_RDONLY));
  }
  return make_tar_source(open_descriptor(std::move(fd)), path, mode);
}

}  // namespace varve::chunkstore
