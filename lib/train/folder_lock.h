// The lock of a folder to which at most one process writes.
#pragma once

#include <filesystem>
#include <string>

namespace mh::train {

// Throws Error(input) if the path is a symbolic link. A run folder from another person may contain links to files
// elsewhere, which the run would overwrite.
void refuse_link(const std::filesystem::path& path);

// Holds the lock of a folder: a lock of flock(2) on the file `lock` in the folder, which contains the text "process PID
// on HOST" for other processes.
class FolderLock {
 public:
  // Locks the folder, which must exist. Throws Error(failed), which names the process and its host, if another process
  // holds the lock, with `advice` as the last part of the message; Error(failed) if the file cannot be created, locked
  // or written; and the error of refuse_link() for a symbolic link in the place of the file.
  FolderLock(const std::string& folder, const std::string& advice);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;  // file descriptor of the file `lock`, which holds the lock until the descriptor is closed
};

}  // namespace mh::train
