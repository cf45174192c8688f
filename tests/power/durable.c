/* LD_PRELOAD shim: keeps in $DURABLE_SHADOW what fsync and fdatasync have made durable of the files
 * below $DURABLE_ROOT (absolute, no symbolic links): <id>.data is the content of a file at its last
 * sync, <id>.names the entries of a directory, a line each: "f|d <id> <name>". The id comes from
 * the inode and not the path, since a file is often renamed after its sync. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A gap in the shadow would pass for data the program failed to sync, so it ends the program. */
static void require(int ok, const char *what) {
    if (!ok) perror(what), abort();
}

static int below_root(const char *link) {
    char path[PATH_MAX] = "";
    const char *root = getenv("DURABLE_ROOT");
    size_t n = root ? strlen(root) : 0;
    return n && readlink(link, path, sizeof path - 1) >= 0 && !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

/* ext4 gives the inode of a replaced file to the next new one: the time of birth tells them apart.
 * A directory goes by inode alone, which is all that the reader can find out about the root. */
static unsigned identify(int fd, const char *name, char *id) {
    struct statx s;
    int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, fields = STATX_TYPE | STATX_INO | STATX_BTIME;
    if (statx(fd, name, flags, fields, &s)) return 0; /* removed since it was listed */
    int n = sprintf(id, "%llu", s.stx_ino);
    if (S_ISREG(s.stx_mode)) sprintf(id + n, "-%lld.%09u", s.stx_btime.tv_sec, s.stx_btime.tv_nsec);
    return s.stx_mode;
}

static void save_content(int fd, const char *link, FILE *out) {
    char block[1 << 16];
    ssize_t n;
    /* Only a descriptor that cannot read is opened anew: closing any descriptor of a file drops the
     * process's fcntl locks on it, SQLite's among them. */
    int write_only = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
    int in = write_only ? open(link, O_RDONLY | O_CLOEXEC) : fd;
    for (off_t at = 0; (n = pread(in, block, sizeof block, at)) > 0; at += n) fwrite(block, 1, n, out);
    require(n == 0, "durable: read");
    if (write_only) close(in);
}

static void save_names(int fd, FILE *out) {
    /* Opened anew, so that the program's own position in the directory stays. */
    DIR *dir = fdopendir(openat(fd, ".", O_RDONLY | O_CLOEXEC));
    require(dir != NULL, "durable: opendir");
    for (struct dirent *entry; (entry = readdir(dir));) {
        char id[64], *name = entry->d_name;
        unsigned mode = strcmp(name, ".") && strcmp(name, "..") ? identify(fd, name, id) : 0;
        if (S_ISREG(mode)) fprintf(out, "f %s %s\n", id, name);
        if (S_ISDIR(mode)) fprintf(out, "d %s %s\n", id, name);
    }
    closedir(dir);
}

static int sync_and_record(int fd, const char *function) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, function);
    const char *shadow = getenv("DURABLE_SHADOW");
    char id[72], link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    unsigned mode = shadow && below_root(link) ? identify(fd, "", id) : 0;
    if (!S_ISREG(mode) && !S_ISDIR(mode)) return real(fd);
    /* The lock puts the syncs of all threads and processes in one order, and the reader between two. */
    int lock = open(shadow, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (flock(lock, LOCK_EX)) require(errno == EINTR, "durable: lock");
    FILE *out = fdopen(openat(lock, "temporary", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), "w");
    require(out != NULL, "durable: open");
    /* Taken before the sync and published after it: what another thread writes meanwhile is not durable. */
    S_ISDIR(mode) ? save_names(fd, out) : save_content(fd, link, out);
    require(!ferror(out) && !fclose(out), "durable: write");
    int result = real(fd), error = errno;
    strcat(id, S_ISDIR(mode) ? ".names" : ".data");
    require(result || !renameat(lock, "temporary", lock, id), "durable: rename");
    close(lock);
    errno = error;
    return result;
}

int fsync(int fd) { return sync_and_record(fd, "fsync"); }
int fdatasync(int fd) { return sync_and_record(fd, "fdatasync"); }
