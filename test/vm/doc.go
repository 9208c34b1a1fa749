// Package vm has the tests of kubelot as it is installed and run on a node: in a virtual machine with Debian 12,
// systemd as its first process, cgroup v2 with the systemd driver, AppArmor and swap, joined by TLS bootstrap to a
// control plane on this host.
//
//	make vm-test                            all tests
//	make vm-test QUICK=1                    the quick part: at most ten minutes where nothing else runs
//	make vm-test FOCUS=TestNode/Reboot      tests by name
//	make vm-test RUNTIME=debian-containerd  with Debian's own containerd 1.6 and runc 1.1
//	make vm-test INSTALL=executables        with kubelot install, and not kubelot's packages
//	make vm-test QUICK=1 INSTALL=packages   the other way round
//	make vm                                 the machine for people, with a shell and a kubeconfig
//
// The parts: image builds the disk, machine runs it under qemu, guest makes a node of it. Where a kernel boots with KVM
// in good time, qemu takes that, and emulates otherwise: about a tenth of this host's speed, so all limits are
// generous. VM_ACCEL=kvm or tcg chooses.
//
// The tests run on this host. They see the API server as users do (package kit of the end-to-end tests), and use
// guest.Guest for what is in the machine: Machine.Run, Machine.Copy, Machine.Write, Reboot, Systemctl, Eventually. They
// share the machine and run one after the other, each with a namespace of its own, and leave kubelot running.
package vm
