#!/usr/bin/env bash
# Makes the parts of the virtual machine in a directory: disk.img (Debian 12), vmlinuz, and initrd.cpio, whose modules
# and program find the disk.
#   build.sh DIRECTORY PACKAGE...
# It runs as root, takes the packages from the places of this machine's apt, and needs those of the Go package beside
# it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$1
shift
root=$out/root

# Documentation would be a third of the disk. libc knows C.UTF-8 without locales.
sources=(/etc/apt/sources.list.d/debian.sources)
[ -e "${sources[0]}" ] || sources=(/etc/apt/sources.list)
mmdebstrap --mode=root --variant=minbase --include="$(IFS=,; echo "$*")" \
  --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-unsafe-io \
  bookworm "$root" "${sources[@]}"

# The kernel's package isn't installed: it would have an initramfs of its own made.
kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
(cd "$out" && apt-get download -q "$kernel" && dpkg-deb -x "$kernel"_*.deb kernel && rm "$kernel"_*.deb)
version=${kernel#linux-image-}
mv "$out/kernel/boot/vmlinuz-$version" "$out/vmlinuz"
# kubeadm's preflight reads how the kernel was built.
mkdir -p "$root/boot"
mv "$out/kernel/boot/config-$version" "$root/boot/"
mv "$out/kernel/lib/modules" "$root/usr/lib/modules"
depmod -b "$root" "$version"

# Nothing of the machine's own accord may run beside the tests, and what belongs to a run comes with it.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer getty@tty1.service systemd-timesyncd.service systemd-networkd-wait-online.service; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# Clients and servers of network volumes are started by the tests that need them: others boot without them.
chroot "$root" systemctl disable -q nfs-server.service nfs-client.target nfs-blkmap.service rpcbind.service \
  rpcbind.socket iscsid.service iscsid.socket open-iscsi.service tgt.service
# The name is systemd's from the command line: an empty file asks it to make a machine ID at the first boot.
: >"$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/resolv.conf" "$root/etc/hostname"
chroot "$root" systemctl enable -q systemd-networkd.service ssh.service
cp "$here/files/eth0.network" "$root/etc/systemd/network/eth0.network"
echo nameserver 10.0.2.3 >"$root/etc/resolv.conf"

# Sparse: what the tests don't write costs nothing.
mke2fs -q -t ext4 -L root -E lazy_itable_init=1,lazy_journal_init=1 -O ^metadata_csum_seed \
  -d "$root" "$out/disk.img" 12G

initrd=$out/initrd
mkdir -p "$initrd"/{bin,modules,proc,sys,dev,disk}
cp /bin/busybox "$initrd/bin/busybox"
cp "$here/files/init" "$initrd/init"
cp "$here/files/probe" "$initrd/probe"
chmod 0755 "$initrd/init" "$initrd/probe"
: >"$initrd/modules/order"
for module in virtio_pci virtio_blk ext4; do
  modprobe -d "$root" -S "$version" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
done | awk '!seen[$0]++' | while read -r path; do
  cp "$path" "$initrd/modules/"
  basename "$path" >>"$initrd/modules/order"
done
(cd "$initrd" && find . | cpio --quiet -o -H newc >"$out/initrd.cpio")
rm -rf "$root" "$initrd" "$out/kernel"
