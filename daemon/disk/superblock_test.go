package disk

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Two subvolumes of one btrfs are one filesystem, whatever stat says; a disk of its own is another.
func TestSubvolumesShareADevice(t *testing.T) {
	const mounts = `25 1 0:22 /@ / rw,relatime shared:1 - btrfs /dev/vda2 rw,ssd,subvolid=256,subvol=/@
250 25 0:22 /@containerd /var/lib/containerd rw shared:9 - btrfs /dev/vda2 rw,subvolid=257
26 25 253:3 / /var/lib/kubelet rw,relatime shared:2 - xfs /dev/vdb rw
27 25 nonsense
`
	root, ok := deviceOfMount(mounts, 25)
	images, okImages := deviceOfMount(mounts, 250)
	if !ok || !okImages || root != images || root != unix.Mkdev(0, 22) {
		t.Errorf("the root is on %d, images are on %d", root, images)
	}
	if device, ok := deviceOfMount(mounts, 26); !ok || device != unix.Mkdev(253, 3) {
		t.Errorf("the disk is %d, %t", device, ok)
	}
	for _, id := range []uint64{27, 2, 0} {
		if device, ok := deviceOfMount(mounts, id); ok {
			t.Errorf("mount %d is on %d", id, device)
		}
	}
}

func TestTheMountOfThisMachine(t *testing.T) {
	const none = 1 << 60
	if root, later := Superblock("/proc", none), Superblock("/proc/not/there/yet", none); root == none || root != later {
		t.Errorf("/proc is on %d, what is to be made below it on %d", root, later)
	}
	if Superblock("/proc", none) == Superblock("/sys", none) {
		t.Error("/proc and /sys are one filesystem")
	}
}
