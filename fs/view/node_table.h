#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fs/view/layer_view.h"

namespace varve::fs {

/// A trust domain: a directory of layers. Lives while it has views or the kernel knows it.
struct Domain {
  Domain(std::string domain_name, uint64_t node) : name(std::move(domain_name)), node_id(node) {}

  const std::string name;
  const uint64_t node_id;
  std::atomic<int64_t> lookup_count{0};
  /// The views by layer id in hexadecimal, attached or still in use. Guarded by the node table.
  std::map<std::string, std::shared_ptr<LayerView>, std::less<>> views;
};

/// What a node id stands for. Value type; holds what it names.
struct Node {
  enum class Kind { kRoot, kDomain, kLayer, kImage, kTree };
  Kind kind = Kind::kRoot;
  uint64_t id = 0;
  std::shared_ptr<Domain> domain;   ///< kDomain.
  std::shared_ptr<LayerView> view;  ///< kLayer, kImage, kTree.
  uint64_t nid = 0;                 ///< kTree: EROFS nid.
};

/// The nodes of the mount and who still uses them. A node id is a pure function of (domain, layer,
/// inode), so the kernel may keep what it cached over a detach and a new attach. Thread-safe.
class NodeTable {
 public:
  /// The node ids of a view start here; tests put a function in that makes ranges meet.
  using FirstNodeId = uint64_t (*)(std::string_view domain, const Digest& layer);

  explicit NodeTable(FirstNodeId first_node_id = hashed_node_id);

  /// Makes `layer` visible in `domain`, or counts one more attach of it.
  /// Errors: kInternal when its node ids would meet another view's (64-bit hashes: never seen).
  Result<std::shared_ptr<LayerView>> attach(std::string_view domain,
                                            std::shared_ptr<AttachedLayer> layer);
  /// What an already attached layer is seen through, with one more attach; nothing when it is not.
  std::shared_ptr<LayerView> attach_again(std::string_view domain, const Digest& layer);
  /// `layer` with a source in `store`, seen in whatever domain, to be shared; null when there is
  /// none.
  std::shared_ptr<AttachedLayer> find_layer(const Digest& layer,
                                            const chunkstore::Store& store) const;

  struct Detached {
    bool was_last = false;         ///< The layer is not attached in this domain any more.
    uint64_t domain_node = 0;      ///< Parent of the layer's directory entry, for its invalidation.
    bool domain_is_empty = false;  ///< Nothing is attached in the domain any more.
  };
  /// Ends one attach. The view stays readable while the kernel holds nodes of it.
  Detached detach(const std::shared_ptr<LayerView>& view);

  /// The node of domain `name`, whether or not it exists.
  static uint64_t domain_node(std::string_view name);

  /// Nothing for an id that stands for nothing (any more).
  std::optional<Node> find(uint64_t node_id) const;
  /// The attached child `name` of the root or of a domain, with the reference that the kernel will
  /// hold counted; nothing when there is none.
  std::optional<Node> look_up(const Node& parent, std::string_view name);
  /// Counts a reference to a node of a view or domain.
  static void add_reference(const Node& node);
  /// The kernel dropped `count` references.
  void forget(uint64_t node_id, uint64_t count);

  /// Names and nodes of the attached children of the root or a domain, sorted by name.
  std::vector<std::pair<std::string, uint64_t>> children(const Node& parent) const;
  std::vector<std::shared_ptr<LayerView>> attached_views() const;
  /// Views, attached or only still in use.
  size_t view_count() const;

  static uint64_t hashed_node_id(std::string_view domain, const Digest& layer);

 private:
  Domain& domain_of(std::string_view name);
  static bool has_attached_view(const Domain& domain);
  void drop_unused(Domain& domain);
  bool range_is_free(uint64_t first, uint64_t count) const;

  const FirstNodeId first_node_id_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::shared_ptr<Domain>, std::less<>> domains_;
  std::map<uint64_t, std::shared_ptr<Domain>> domains_by_node_;
  std::map<uint64_t, std::shared_ptr<LayerView>> views_by_node_;  // By first_node_id.
};

}  // namespace varve::fs
