#pragma once

#include <cstdlib>
#include <string>

namespace varve::chunkstore {

/// `wanted`, or $TMPDIR, or /var/tmp: spilled files are large, so not /tmp, which may be memory.
inline std::string temp_directory_or_default(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const char* from_environment = std::getenv("TMPDIR");
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : "/var/tmp";
}

}  // namespace varve::chunkstore
