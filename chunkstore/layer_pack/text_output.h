#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/tool_io.h"
#include "chunkstore/erofs/reader.h"

/// What layer-pack prints. For .cc files only (heavy header).
namespace varve::layer_pack {

/// A name for one line of a terminal: as it is when that is safe, else quoted with escapes.
std::string shown_name(std::string_view name);
/// A name as it is when it is UTF-8, which JSON demands, else quoted with escapes.
std::string json_name(std::string_view name);
/// JSON for a terminal: as serialized, with every control character escaped.
std::string shown_json(const boost::json::value& value);
/// "drwxr-xr-x".
std::string shown_mode(uint32_t mode);
/// "2026-01-31T12:00:00.5Z", or seconds since 1970 where no calendar reaches.
std::string shown_time(int64_t seconds, uint32_t nanoseconds);

/// Adds `name` to `object` as member "path", or, when it is not UTF-8, as "path_hex".
void add_path(boost::json::object& object, std::string_view path);
/// The attributes of an inode as JSON members.
void add_inode(boost::json::object& object, const chunkstore::erofs::Inode& inode);

/// Writes to io.out, unless that failed before.
void write_output(const ToolIo& io, ByteView bytes);
/// Whether that went well so far: a long listing stops when nobody reads it. Errors: as
/// finish_output().
Status output_status(const ToolIo& io);
/// Writes `value` and a newline.
void print_json(const ToolIo& io, const boost::json::value& value);
void print_line(const ToolIo& io, std::string_view line);
/// Fails, with the errno of it, when something that was printed before did not reach its
/// destination (a full disk, a closed pipe).
Status finish_output(const ToolIo& io);
/// Names damaged names on standard error. kCorruption when there are any.
Status report_damaged_names(const ToolIo& io, const std::string& store,
                            const std::vector<Error>& damaged);

}  // namespace varve::layer_pack
