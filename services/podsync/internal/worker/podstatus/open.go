package podstatus

import "golang.org/x/sys/unix"

// oNoFollowNonblock keeps a container from making its agent follow a link or wait for a FIFO where its
// termination message should be.
const oNoFollowNonblock = unix.O_NOFOLLOW | unix.O_NONBLOCK
