#include "fs/view/file_system.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fs/view/attributes.h"

namespace varve::fs {

using chunkstore::erofs::Dirent;
using chunkstore::erofs::Extent;
using chunkstore::erofs::Inode;
using tl::unexpected;

namespace {

constexpr uint32_t kBlockBytes = 4096;
// Places in a directory are signed; of node ids only the top bit is always set.
constexpr uint64_t kOffsetMask = ~uint64_t{0} >> 1;

template <class T>
size_t put(Request& request, const T& value) {
  std::memcpy(request.payload().data(), &value, sizeof(value));
  return sizeof(value);
}

Node child(const Node& parent, Node::Kind kind, uint64_t nid) {
  Node node;
  node.kind = kind;
  node.view = parent.view;
  node.nid = nid;
  node.id = kind == Node::Kind::kImage ? parent.view->first_node_id + LayerView::kImage
                                       : parent.view->tree_node_id(nid);
  return node;
}

bool is_write(uint32_t opcode) {
  switch (opcode) {
    case fuse::kSetattr:
    case fuse::kSymlink:
    case fuse::kMknod:
    case fuse::kMkdir:
    case fuse::kUnlink:
    case fuse::kRmdir:
    case fuse::kRename:
    case fuse::kRename2:
    case fuse::kLink:
    case fuse::kWrite:
    case fuse::kSetxattr:
    case fuse::kRemovexattr:
    case fuse::kCreate:
    case fuse::kFallocate:
    case fuse::kTmpfile:
      return true;
    default:
      return false;
  }
}

}  // namespace

FileSystem::FileSystem(NodeTable& nodes, ReadService& reads, LogSink log)
    : nodes_(nodes), reads_(reads), log_(std::move(log)), start_time_s_(time(nullptr)) {}

void FileSystem::handle(Request& request) {
  switch (request.header().opcode) {
    case fuse::kRead:
      read(request);
      return;
    case fuse::kForget:
      if (const auto* in = request.argument<fuse::ForgetIn>()) {
        nodes_.forget(request.header().node_id, in->lookup_count);
      }
      request.finish_without_reply();
      return;
    case fuse::kBatchForget:
      forget_batch(request);
      request.finish_without_reply();
      return;
    case fuse::kInterrupt:
      if (const auto* in = request.argument<fuse::InterruptIn>()) reads_.interrupt(in->unique);
      request.finish_without_reply();
      return;
    default:
      break;
  }
  const Reply reply = dispatch(request);
  if (reply) {
    request.reply(*reply);
  } else {
    request.reply_error(reply.error());
  }
}

FileSystem::Reply FileSystem::dispatch(Request& request) {
  const uint32_t opcode = request.header().opcode;
  switch (opcode) {
    case fuse::kLookup:
      return look_up(request);
    case fuse::kGetattr:
      return get_attributes(request);
    case fuse::kReadlink:
      return read_link(request);
    case fuse::kOpen:
    case fuse::kOpendir:
      return open(request, opcode == fuse::kOpendir);
    case fuse::kRelease:
    case fuse::kReleasedir:
    case fuse::kDestroy:
      return 0;
    case fuse::kReaddir:
    case fuse::kReaddirplus:
      return read_directory(request, opcode == fuse::kReaddirplus);
    case fuse::kGetxattr:
      return get_xattr(request);
    case fuse::kListxattr:
      return list_xattrs(request);
    case fuse::kStatfs:
      return stat_fs(request);
    default:
      return unexpected(is_write(opcode) ? EROFS : ENOSYS);
  }
}

int FileSystem::errno_of(const Node& node, const Error& error) const {
  const std::string id = node.view->layer->id().hex();
  log_(LogLevel::kError, "tree " + id, "layer " + id + ": " + error.to_string());
  return error_code_to_errno(error.code());
}

tl::expected<Node, int> FileSystem::node_of(const Request& request) const {
  std::optional<Node> node = nodes_.find(request.header().node_id);
  if (!node) return unexpected(ESTALE);
  return std::move(*node);
}

tl::expected<Inode, int> FileSystem::inode_of(const Node& node) const {
  auto inode = node.view->layer->reader().inode(node.nid);
  if (!inode) return unexpected(errno_of(node, inode.error()));
  return std::move(*inode);
}

tl::expected<fuse::Attr, int> FileSystem::attributes_of(const Node& node) const {
  switch (node.kind) {
    case Node::Kind::kRoot:
    case Node::Kind::kDomain:
      return synthetic_directory_attributes(
          node.id, static_cast<uint32_t>(2 + nodes_.children(node).size()), start_time_s_);
    case Node::Kind::kLayer:
      return synthetic_directory_attributes(node.id, 3, start_time_s_);
    case Node::Kind::kImage:
      return image_attributes(node.id, node.view->layer->image_bytes(), start_time_s_);
    case Node::Kind::kTree:
      break;
  }
  const auto inode = inode_of(node);
  if (!inode) return unexpected(inode.error());
  return tree_attributes(node.id, *inode);
}

FileSystem::Reply FileSystem::look_up(Request& request) {
  const auto parent = node_of(request);
  if (!parent) return unexpected(parent.error());
  if (request.name_is_too_long()) return unexpected(ENAMETOOLONG);
  const std::string_view name = request.name();
  std::optional<Node> found;
  switch (parent->kind) {
    case Node::Kind::kRoot:
    case Node::Kind::kDomain:
      // An absent name may be attached in a moment, so its absence is not for keeps.
      found = nodes_.look_up(*parent, name);
      break;
    case Node::Kind::kLayer:
      if (name == kImageName) found = child(*parent, Node::Kind::kImage, 0);
      if (name == kTreeName) {
        found = child(*parent, Node::Kind::kTree, parent->view->layer->reader().root_nid());
      }
      if (found) NodeTable::add_reference(*found);
      break;
    case Node::Kind::kImage:
      return unexpected(ENOTDIR);
    case Node::Kind::kTree:
      return look_up_in_tree(request, *parent);
  }
  if (!found) return unexpected(ENOENT);
  const auto attributes = attributes_of(*found);
  if (!attributes) {
    nodes_.forget(found->id, 1);
    return unexpected(attributes.error());
  }
  return put(request, permanent_entry(*attributes));
}

FileSystem::Reply FileSystem::look_up_in_tree(Request& request, const Node& parent) {
  const auto directory = inode_of(parent);
  if (!directory) return unexpected(directory.error());
  if (!S_ISDIR(directory->mode)) return unexpected(ENOTDIR);
  const auto dirent = parent.view->layer->reader().lookup(*directory, request.name());
  if (!dirent) return unexpected(errno_of(parent, dirent.error()));
  if (!dirent->has_value()) {
    // The tree never changes: the kernel may remember that the name is absent.
    fuse::EntryOut absent = permanent_entry({});
    absent.generation = 0;
    return put(request, absent);
  }
  const Node node = child(parent, Node::Kind::kTree, (*dirent)->nid);
  const auto attributes = attributes_of(node);
  if (!attributes) return unexpected(attributes.error());
  NodeTable::add_reference(node);
  return put(request, permanent_entry(*attributes));
}

FileSystem::Reply FileSystem::get_attributes(Request& request) {
  const auto node = node_of(request);
  if (!node) return unexpected(node.error());
  const auto attributes = attributes_of(*node);
  if (!attributes) return unexpected(attributes.error());
  return put(request, permanent_attributes(*attributes));
}

FileSystem::Reply FileSystem::read_link(Request& request) {
  const auto node = node_of(request);
  if (!node) return unexpected(node.error());
  if (node->kind != Node::Kind::kTree) return unexpected(EINVAL);
  const auto inode = inode_of(*node);
  if (!inode) return unexpected(inode.error());
  if (!S_ISLNK(inode->mode)) return unexpected(EINVAL);
  const auto target = node->view->layer->reader().read_link(*inode);
  if (!target) return unexpected(errno_of(*node, target.error()));
  const MutableByteView payload = request.payload();
  if (target->size() > payload.size()) return unexpected(ENAMETOOLONG);
  std::memcpy(payload.data(), target->data(), target->size());
  return target->size();
}

FileSystem::Reply FileSystem::open(Request& request, bool is_directory) {
  if (opens_are_needless_) return unexpected(ENOSYS);
  const auto node = node_of(request);
  if (!node) return unexpected(node.error());
  fuse::OpenOut out{};
  out.open_flags = fuse::kOpenKeepCache | (is_directory ? fuse::kOpenCacheDir : fuse::kOpenNoFlush);
  return put(request, out);
}

FileSystem::Reply FileSystem::read_directory(Request& request, bool with_attributes) {
  const auto node = node_of(request);
  if (!node) return unexpected(node.error());
  const auto* in = request.argument<fuse::ReadIn>();
  if (in == nullptr) return unexpected(EINVAL);
  const MutableByteView payload = request.payload();
  const MutableByteView to = payload.first(std::min<size_t>(payload.size(), in->size));
  if (node->kind == Node::Kind::kTree) {
    return read_tree_directory(request, *node, in->offset, to, with_attributes);
  }
  return read_synthetic_directory(*node, in->offset, to, with_attributes);
}

FileSystem::Reply FileSystem::read_tree_directory(const Request&, const Node& node, uint64_t offset,
                                                  MutableByteView to, bool with_attributes) {
  const auto directory = inode_of(node);
  if (!directory) return unexpected(directory.error());
  if (!S_ISDIR(directory->mode)) return unexpected(ENOTDIR);
  const auto& reader = node.view->layer->reader();
  DirectoryWriter writer(to, with_attributes);
  int64_t reference_count = 0;
  const Status status =
      reader.read_directory(*directory, offset, [&](const Dirent& dirent, uint64_t next_offset) {
        if (!writer.fits(dirent.name)) return false;
        const Node entry_node = child(node, Node::Kind::kTree, dirent.nid);
        fuse::EntryOut entry{};
        // The kernel takes no reference for these two.
        const bool is_dot = dirent.name == "." || dirent.name == "..";
        if (with_attributes && !is_dot) {
          // An inode that cannot be read shows its error when it is looked up.
          if (const auto inode = reader.inode(dirent.nid)) {
            entry = permanent_entry(tree_attributes(entry_node.id, *inode));
            ++reference_count;
          }
        }
        writer.add(dirent.name, entry_node.id, directory_entry_type(dirent.type), next_offset,
                   entry);
        return true;
      });
  if (!status) return unexpected(errno_of(node, status.error()));
  node.view->lookup_count.fetch_add(reference_count);
  return writer.size();
}

FileSystem::Reply FileSystem::read_synthetic_directory(const Node& node, uint64_t offset,
                                                       MutableByteView to, bool with_attributes) {
  std::vector<std::pair<std::string, uint64_t>> children;
  if (node.kind == Node::Kind::kLayer) {
    children = {
        {std::string(kImageName), node.id + LayerView::kImage},
        {std::string(kTreeName), node.view->tree_node_id(node.view->layer->reader().root_nid())}};
  } else if (node.kind == Node::Kind::kRoot || node.kind == Node::Kind::kDomain) {
    children = nodes_.children(node);
  } else {
    return unexpected(ENOTDIR);
  }
  // Layers come and go while somebody lists them: the place of an entry is its own, by its node id,
  // and does not depend on who is there before it.
  std::ranges::sort(children, {}, &std::pair<std::string, uint64_t>::second);
  constexpr uint64_t kDotCount = 2;
  children.insert(children.begin(), {{".", node.id}, {"..", node.id}});
  DirectoryWriter writer(to, with_attributes);
  for (size_t i = 0; i < children.size(); ++i) {
    const auto& [name, id] = children[i];
    const uint64_t next_offset = i < kDotCount ? i + 1 : (id & kOffsetMask) + kDotCount + 1;
    if (next_offset <= offset) continue;
    if (!writer.fits(name)) break;
    const bool is_file = node.kind == Node::Kind::kLayer && name == kImageName;
    // No attributes: the kernel looks up what it is asked for, and only then holds it.
    writer.add(name, id, is_file ? DT_REG : DT_DIR, next_offset, {});
  }
  return writer.size();
}

FileSystem::Reply FileSystem::get_xattr(Request& request) {
  const auto node = node_of(request);
  if (!node) return unexpected(node.error());
  const auto* in = request.argument<fuse::GetxattrIn>();
  if (in == nullptr) return unexpected(EINVAL);
  if (node->kind != Node::Kind::kTree) return unexpected(ENODATA);
  const auto inode = inode_of(*node);
  if (!inode) return unexpected(inode.error());
  if (inode->xattr_size == 0) return unexpected(ENODATA);
  const auto xattrs = node->view->layer->reader().xattrs(*inode);
  if (!xattrs) return unexpected(errno_of(*node, xattrs.error()));
  const auto found = xattrs->find(std::string(request.name()));
  if (found == xattrs->end()) return unexpected(ENODATA);
  const std::string& value = found->second;
  if (in->size == 0) return put(request, fuse::GetxattrOut{static_cast<uint32_t>(value.size()), 0});
  if (value.size() > in->size) return unexpected(ERANGE);
  std::memcpy(request.payload().data(), value.data(), value.size());
  return value.size();
}

FileSystem::Reply FileSystem::list_xattrs(Request& request) {
  const auto node = node_of(request);
  if (!node) return unexpected(node.error());
  const auto* in = request.argument<fuse::GetxattrIn>();
  if (in == nullptr) return unexpected(EINVAL);
  std::string names;
  if (node->kind == Node::Kind::kTree) {
    const auto inode = inode_of(*node);
    if (!inode) return unexpected(inode.error());
    const auto xattrs = node->view->layer->reader().xattrs(*inode);
    if (!xattrs) return unexpected(errno_of(*node, xattrs.error()));
    for (const auto& [name, value] : *xattrs) {
      // Other filesystems show these to privileged callers only.
      if (name.starts_with("trusted.") && request.header().uid != 0) continue;
      names += name;
      names += '\0';
    }
  }
  if (in->size == 0) return put(request, fuse::GetxattrOut{static_cast<uint32_t>(names.size()), 0});
  if (names.size() > in->size) return unexpected(ERANGE);
  std::memcpy(request.payload().data(), names.data(), names.size());
  return names.size();
}

FileSystem::Reply FileSystem::stat_fs(Request& request) {
  const auto node = node_of(request);
  if (!node) return unexpected(node.error());
  fuse::StatfsOut out{};
  out.block_size = kBlockBytes;
  out.fragment_size = kBlockBytes;
  out.name_length_max = Request::kNameBytesMax;
  if (node->view != nullptr) {
    out.blocks = node->view->layer->image_bytes() / kBlockBytes;
    out.files = node->view->layer->reader().inode_count();
  }
  return put(request, out);
}

void FileSystem::read(Request& request) {
  const auto node = node_of(request);
  const auto* in = request.argument<fuse::ReadIn>();
  if (!node || in == nullptr) {
    request.reply_error(node ? EINVAL : node.error());
    return;
  }
  const auto size = static_cast<uint32_t>(std::min<size_t>(in->size, request.payload().size()));
  if (node->kind == Node::Kind::kTree) {
    read_tree_file(request, *node, in->offset, size);
    return;
  }
  if (node->kind != Node::Kind::kImage) {
    request.reply_error(EISDIR);
    return;
  }
  const uint64_t image_bytes = node->view->layer->image_bytes();
  if (in->offset >= image_bytes || size == 0) {
    request.reply(0);
    return;
  }
  const auto clipped = static_cast<uint32_t>(std::min<uint64_t>(size, image_bytes - in->offset));
  reads_.read(request, node->view->layer, {{in->offset, clipped, 0}}, clipped);
}

void FileSystem::read_tree_file(Request& request, const Node& node, uint64_t offset,
                                uint32_t size) {
  const auto inode = inode_of(node);
  if (!inode || !S_ISREG(inode->mode)) {
    request.reply_error(inode ? EINVAL : inode.error());
    return;
  }
  const auto extents = node.view->layer->reader().extents(*inode, offset, size);
  if (!extents) {
    request.reply_error(errno_of(node, extents.error()));
    return;
  }
  std::vector<ReadSegment> segments;
  uint32_t total = 0;
  for (const Extent& extent : *extents) {
    segments.push_back({extent.image_offset.value_or(ReadSegment::kHole),
                        static_cast<uint32_t>(extent.size), total});
    total += static_cast<uint32_t>(extent.size);
  }
  if (total == 0) {
    request.reply(0);
    return;
  }
  reads_.read(request, node.view->layer, std::move(segments), total);
}

void FileSystem::forget_batch(const Request& request) {
  const auto* in = request.argument<fuse::BatchForgetIn>();
  if (in == nullptr) return;
  ByteView rest = request.tail();
  for (uint32_t i = 0; i < in->count && rest.size() >= sizeof(fuse::ForgetOne); ++i) {
    fuse::ForgetOne one;
    std::memcpy(&one, rest.data(), sizeof(one));
    nodes_.forget(one.node_id, one.lookup_count);
    rest = rest.subspan(sizeof(one));
  }
}

}  // namespace varve::fs
