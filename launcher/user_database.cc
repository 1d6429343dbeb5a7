#include "launcher/user_database.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/file_io.h"
#include "launcher/spec.h"

namespace varve::launcher {
namespace {

constexpr size_t kDatabaseBytesMax = size_t{1} << 20;

/// The fields of each line in turn, as far as `N`; lines with fewer are passed over.
template <size_t N, class Visitor>
void for_each_line(std::string_view text, Visitor visit) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::array<std::string_view, N> fields;
    size_t count = 0;
    while (count < N) {
      const size_t colon = line.find(':');
      fields[count++] = line.substr(0, colon);
      if (colon == std::string_view::npos) break;
      line.remove_prefix(colon + 1);
    }
    if (count == N && !visit(fields)) return;
  }
}

bool has_member(std::string_view members, std::string_view name) {
  while (!members.empty()) {
    const std::string_view one = members.substr(0, members.find(','));
    if (one == name) return true;
    members.remove_prefix(std::min(one.size() + 1, members.size()));
  }
  return false;
}

tl::unexpected<Error> no_id(const char* what) {
  return fail(ErrorCode::kInvalidArgument,
              std::string(what) + " id 4294967295 means none: ids go from 0 to 4294967294");
}

/// An id of a line of the database; nothing makes a user or group of kNoId.
std::optional<uint32_t> parse_id(std::string_view text) {
  const auto id = parse_u32(text);
  return id == kNoId ? std::nullopt : id;
}

/// The file's text, "" when the image has none.
Result<std::string> read_database(int root, const char* path) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, root, path, &how, sizeof how)));
  if (!fd) {
    if (errno == ENOENT || errno == ENOTDIR) return std::string();
    return fail_errno("opening the image's " + quoted(path));
  }
  std::string text(kDatabaseBytesMax, '\0');
  auto n = pread_some(fd.get(), 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  if (!n) return fail(std::move(n).error(), "reading the image's " + quoted(path));
  text.resize(*n);
  return text;
}

/// Fills in uid, primary gid and home; @return the name for the group memberships.
Result<std::string> find_user(const std::string& user, std::string_view passwd,
                              MountsMessage& identity) {
  const auto number = parse_u32(user);
  if (number == kNoId) return no_id("user");
  std::string name;
  bool found = false;
  for_each_line<7>(passwd, [&](const std::array<std::string_view, 7>& line) {
    const auto uid = parse_id(line[2]);
    const auto gid = parse_id(line[3]);
    if (!uid || !gid || (number ? *uid != *number : line[0] != user)) return true;
    found = true;
    name = line[0];
    identity.uid = *uid;
    identity.gid = *gid;
    const size_t size = std::min(line[5].size(), sizeof identity.home - 1);
    std::memcpy(identity.home, line[5].data(), size);
    identity.home[size] = '\0';
    return false;
  });
  if (found) return name;
  if (!number) return fail(ErrorCode::kNotFound, "the image has no user " + quoted(user));
  identity.uid = *number;
  identity.gid = 0;
  std::strcpy(identity.home, *number == 0 ? "/root" : "/");
  return name;
}

}  // namespace

Result<MountsMessage> parse_identity(const std::string& user, std::string_view passwd,
                                     std::string_view group) {
  MountsMessage identity;
  const size_t colon = user.find(':');
  const std::string user_part = user.substr(0, colon);
  VARVE_ASSIGN(const std::string name, find_user(user_part, passwd, identity));
  if (colon == std::string::npos) {
    for_each_line<4>(group, [&](const std::array<std::string_view, 4>& line) {
      const auto gid = parse_id(line[2]);
      if (gid && !name.empty() && has_member(line[3], name) &&
          identity.group_count < MountsMessage::kGroupsMax) {
        identity.groups[identity.group_count++] = *gid;
      }
      return true;
    });
    return identity;
  }
  const std::string group_part = user.substr(colon + 1);
  if (const auto gid = parse_u32(group_part)) {
    if (*gid == kNoId) return no_id("group");
    identity.gid = *gid;
    return identity;
  }
  bool found = false;
  for_each_line<4>(group, [&](const std::array<std::string_view, 4>& line) {
    const auto gid = parse_id(line[2]);
    if (!gid || line[0] != group_part) return true;
    identity.gid = *gid;
    found = true;
    return false;
  });
  if (!found) return fail(ErrorCode::kNotFound, "the image has no group " + quoted(group_part));
  return identity;
}

Result<MountsMessage> find_identity(int root, const std::string& user) {
  if (user.empty() || user == "root" || user == "0" || user == "0:0" || user == "root:root") {
    return MountsMessage{};
  }
  VARVE_ASSIGN(const std::string passwd, read_database(root, "etc/passwd"));
  VARVE_ASSIGN(const std::string group, read_database(root, "etc/group"));
  return parse_identity(user, passwd, group);
}

}  // namespace varve::launcher
