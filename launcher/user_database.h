#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "launcher/child_protocol.h"

namespace varve::launcher {

/// Whom `user` ("", NAME, UID, each with ":GROUP" or ":GID") means in the image mounted at the
/// descriptor `root`: ids, supplementary groups and home directory from its /etc/passwd and
/// /etc/group. Root by default, without reading anything: on a cold image a look costs a fetch.
///
/// The files belong to the image: they are opened without leaving it and read up to 1 MiB.
/// Errors: kNotFound (no such name), kInvalidArgument.
Result<MountsMessage> find_identity(int root, const std::string& user);

/// The same on texts, for tests.
Result<MountsMessage> parse_identity(const std::string& user, std::string_view passwd,
                                     std::string_view group);

}  // namespace varve::launcher
