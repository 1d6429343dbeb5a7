#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "fs/fetch/read_service.h"
#include "fs/fuse/request.h"
#include "fs/log.h"
#include "fs/view/node_table.h"

namespace varve::fs {

/// The filesystem: `/<domain>/<layer id>/image.erofs` and `/<domain>/<layer id>/tree/…`. Everything
/// but file data is answered at once from local metadata. Thread-safe.
class FileSystem : public RequestHandler {
 public:
  FileSystem(NodeTable& nodes, ReadService& reads, LogSink log);

  /// Before the first request: OPEN and OPENDIR may be answered with ENOSYS, which spares them.
  void set_opens_are_needless(bool value) { opens_are_needless_ = value; }

  void handle(Request& request) override;

 private:
  /// Bytes of a reply's payload, or a positive errno.
  using Reply = tl::expected<size_t, int>;

  Reply dispatch(Request& request);
  Reply look_up(Request& request);
  Reply look_up_in_tree(Request& request, const Node& parent);
  Reply get_attributes(Request& request);
  Reply read_link(Request& request);
  Reply open(Request& request, bool is_directory);
  Reply read_directory(Request& request, bool with_attributes);
  Reply read_tree_directory(const Request& request, const Node& node, uint64_t offset,
                            MutableByteView to, bool with_attributes);
  Reply read_synthetic_directory(const Node& node, uint64_t offset, MutableByteView to,
                                 bool with_attributes);
  Reply get_xattr(Request& request);
  Reply list_xattrs(Request& request);
  Reply stat_fs(Request& request);
  void read(Request& request);
  void read_tree_file(Request& request, const Node& node, uint64_t offset, uint32_t size);
  void forget_batch(const Request& request);

  tl::expected<Node, int> node_of(const Request& request) const;
  tl::expected<fuse::Attr, int> attributes_of(const Node& node) const;
  tl::expected<chunkstore::erofs::Inode, int> inode_of(const Node& node) const;
  /// Logs what is wrong with a layer and gives the errno for it.
  int errno_of(const Node& node, const Error& error) const;

  NodeTable& nodes_;
  ReadService& reads_;
  const LogSink log_;
  const int64_t start_time_s_;
  std::atomic<bool> opens_are_needless_{false};
};

}  // namespace varve::fs
