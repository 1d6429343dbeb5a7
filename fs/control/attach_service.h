#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "chunkstore/format/image.h"
#include "fs/control/idle_layers.h"
#include "fs/fetch/read_service.h"
#include "fs/fetch/store_session.h"
#include "fs/log.h"
#include "fs/mounter/mounter.h"
#include "fs/transport/session.h"
#include "fs/view/node_table.h"

namespace varve::fs {

/// What `POST /v1/attach` asks for.
struct AttachRequest {
  std::string store;                ///< URL.
  std::string image;                ///< `name:tag` or an id; may be empty when layers are given.
  std::vector<std::string> layers;  ///< Ids of further layers, above the image's, lowest first.
  std::string domain = "default";
  bool wants_mounts = false;
  bool keeps = false;  ///< Outlives the connection that made it.
};

/// One attach that was granted.
struct Attachment {
  std::string lease;
  Digest image_id;  ///< Zero when only layers were asked for.
  chunkstore::Image image;
  /// User and group ids ≥ chunkstore::kLargeIdMin in the image and the further layers, sorted, each
  /// once.
  std::vector<uint32_t> ids;
  std::vector<std::shared_ptr<LayerView>> views;  ///< Lowest first.
  /// One a view: held, so that the layers know these stores.
  std::vector<std::shared_ptr<LayerSource>> sources;
  std::vector<UniqueFd> mounts;         ///< One a view when they were asked for.
  std::vector<std::string> mount_keys;  ///< Shared mounts that this attach uses.
};

struct AttachServiceOptions {
  std::string spool_directory;
  int64_t attach_deadline_ms = 20'000;
  int64_t idle_s = 60;  ///< How long a detached layer stays attached and mounted; 0 = not at all.
  size_t idle_count_max = 256;  ///< Layers that stay so at the same time.
  size_t thread_count_for_each_store = 8;
  size_t store_count_max = 64;
  StoreOpener open_store;
};

/// Attaches and detaches layers. Work that may block runs on the store's own threads; every method
/// here returns soon. Thread-safe.
class AttachService {
 public:
  /// @param mounter  Null where kernel mounts cannot be made. The references outlive the service.
  AttachService(AttachServiceOptions options, NodeTable& nodes, ReadService& reads,
                Session& session, Mounter* mounter, LogSink log);
  /// Blocks while a thread hangs in a store: see stop().
  ~AttachService();

  using Done = std::function<void(Result<std::shared_ptr<Attachment>>)>;
  /// Calls `done` at once when all that it takes is in memory, here and in the kernel; otherwise on
  /// another thread, when the store answered or failed; a store that hangs may never let it.
  void attach(AttachRequest request, Done done);
  /// Gives back what attach() granted, in the background; layers may stay for options.idle_s.
  void detach(std::shared_ptr<Attachment> attachment);

  /// Gives back, in the background, the idle layers whose time has come.
  void expire_idle();
  /// Gives back every idle layer at once.
  void drop_idle();

  /// Runs `task` in the background, e.g. what walks a whole tree.
  void run_in_background(std::function<void()> task);

  int64_t attach_deadline_ms() const { return options_.attach_deadline_ms; }
  /// False when a thread still hangs in a store by `deadline`: then the process must end without
  /// destroying this object.
  bool stop(Deadline deadline);

 private:
  /// A store as an attach finds it.
  struct OpenStore {
    std::shared_ptr<StoreSession> session;
    std::shared_ptr<chunkstore::Store> store;
  };

  Result<std::shared_ptr<StoreSession>> session_of(const std::string& url);
  /// Without blocking; null when that cannot be, and nothing has been done then.
  std::shared_ptr<Attachment> attach_at_once(const AttachRequest& request);
  /// False when one of the layers is not attached or idle already, from this store.
  bool attach_layers_at_once(const chunkstore::Store& store, const AttachRequest& request,
                             Attachment& attachment);
  bool make_mounts_at_once(Attachment& attachment);
  std::shared_ptr<const chunkstore::Image> known_image(const Digest& id);
  void remember_image(const Digest& id, const chunkstore::Image& image);
  Result<std::shared_ptr<Attachment>> attach_now(const std::shared_ptr<StoreSession>& session,
                                                 const AttachRequest& request, Deadline deadline);
  Status attach_layers(const OpenStore& from, const AttachRequest& request, Deadline deadline,
                       Attachment& attachment);
  Status attach_layer(const OpenStore& from, const std::string& domain, const Digest& id,
                      Deadline deadline, Attachment& attachment);
  Result<std::shared_ptr<LayerSource>> find_or_open_source(const OpenStore& from, const Digest& id,
                                                           const AttachedLayer* layer,
                                                           Deadline deadline);
  Result<std::shared_ptr<LayerView>> make_view(const std::string& domain,
                                               std::shared_ptr<AttachedLayer> layer);
  static Status collect_ids(Attachment& attachment);
  Status make_mounts(Attachment& attachment);
  Status invalidate(const LayerView& view, const NodeTable::Detached& detached);
  void detach_now(Attachment& attachment, bool keeps_idle);
  void give_back_mount(const std::string& key);
  void give_back(const std::shared_ptr<LayerView>& view);
  void give_back(std::vector<IdleLayers::Layer> layers);

  const AttachServiceOptions options_;
  NodeTable& nodes_;
  ReadService& reads_;
  Session& session_;
  Mounter* const mounter_;
  const LogSink log_;

  std::mutex stores_mutex_;
  std::map<std::string, std::shared_ptr<StoreSession>> stores_;
  // Some of the images that were attached, the latest last: what an id stands for never changes.
  std::mutex images_mutex_;
  std::deque<std::pair<Digest, std::shared_ptr<const chunkstore::Image>>> images_;
  // Makes "last detach, so unmount" and "first attach, so mount" exclude each other.
  std::mutex transition_mutex_;
  std::map<std::string, size_t> mount_use_counts_;
  IdleLayers idle_;
  std::atomic<bool> is_stopping_{false};
  // Last: its tasks use the rest. It lives as long as the stores' threads, which give it work.
  ThreadPool background_{1};
};

}  // namespace varve::fs
