package dns

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/atomicfile"
)

// The first line says to users, and to the node's own tools, whose file it is.
const (
	headerManaged     = "# Kubernetes-managed hosts file.\n"
	headerHostNetwork = "# Kubernetes-managed hosts file (host network).\n"
	headerAliases     = "\n# Entries added by HostAliases.\n"
)

// loopback are the entries of every pod that has a network of its own.
const loopback = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// HostsInput is what the content of a pod's hosts file follows from.
type HostsInput struct {
	Pod           *corev1.Pod
	ClusterDomain string
	// PodIPs are the sandbox's addresses, primary first.
	PodIPs []string
	// NodeHosts is the content of the node's /etc/hosts; used for pods on the host network.
	NodeHosts []byte
}

// Hosts computes the content of the pod's /etc/hosts. It is nil for a pod whose network isn't there yet, which
// gets no such file.
//
// Source: hosts(5), PodSpec.hostAliases, PodSpec.hostNetwork.
func Hosts(in HostsInput) ([]byte, error) {
	var out bytes.Buffer
	switch {
	case in.Pod.Spec.HostNetwork:
		out.WriteString(headerHostNetwork)
		out.Write(in.NodeHosts)
	case len(in.PodIPs) == 0:
		return nil, nil
	default:
		name, domain, err := hostname(in.Pod, in.ClusterDomain)
		if err != nil {
			return nil, err
		}
		if domain != "" {
			name = name + "." + domain + "\t" + name
		}
		out.WriteString(headerManaged + loopback)
		for _, ip := range in.PodIPs {
			fmt.Fprintf(&out, "%s\t%s\n", ip, name)
		}
	}
	if len(in.Pod.Spec.HostAliases) > 0 {
		out.WriteString(headerAliases)
	}
	for _, alias := range in.Pod.Spec.HostAliases {
		fmt.Fprintf(&out, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return out.Bytes(), nil
}

// HostsPath is where the pod's hosts file lies below its directory, <RootDir>/pods/<uid>.
func HostsPath(podDir string) string { return filepath.Join(podDir, "etc-hosts") }

// WriteHosts brings the file to the given content: untouched when it has it already, so that the containers that
// have it mounted keep what they see, else replaced as a whole, so that a full disk leaves the old file. Two writes
// of one file at a time are the caller's to prevent.
func WriteHosts(path string, content []byte) error {
	if has(path, content) {
		return nil
	}
	// Containers run as any user, and all of them must read it.
	if err := atomicfile.Write(path, content, 0o644); err != nil {
		return fmt.Errorf("write hosts file %s: %w", path, err)
	}
	return nil
}

// has reports whether the file has that content. Containers have it mounted and may have grown it beyond what memory
// holds, so no more of it is read than is asked for.
func has(path string, content []byte) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(content)) {
		return false
	}
	old := make([]byte, len(content))
	_, err = io.ReadFull(f, old)
	return err == nil && bytes.Equal(old, content)
}
