package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"kubelot.dev/test/testbed/proc"
)

const architecture = runtime.GOARCH

var searchPath = []string{"PATH=/bin"}

// layer collects files; the first error is kept until finish.
type layer struct {
	buf    bytes.Buffer
	tar    *tar.Writer
	shared []string // libraries that are in it
	err    error
}

func newLayer() *layer {
	l := &layer{}
	l.tar = tar.NewWriter(&l.buf)
	return l
}

// userland is a root file system around a static busybox.
func userland(busybox string) *layer {
	l := newLayer()
	l.tree()
	l.users("app:x:1000:1000:app:/home:/bin/sh\n", "app:x:1000:\n")
	l.shell(busybox)
	return l
}

func (l *layer) tree() {
	for _, name := range []string{"/bin", "/etc", "/home", "/mnt", "/var"} {
		l.dir(name, 0o755)
	}
	l.dir("/root", 0o700)
	l.dir("/tmp", 0o1777)
}

// users writes the user database: root, nobody, and more.
func (l *layer) users(passwd, group string) {
	l.file("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"+passwd)
	l.file("/etc/group", 0o644, "root:x:0:\nnobody:x:65534:\n"+group)
}

// shell adds a static busybox, with every applet but those that the image has better.
func (l *layer) shell(busybox string, without ...string) {
	l.copy("/bin/busybox", busybox, 0o755)
	applets, err := proc.Command(busybox, "--list").Output()
	if err != nil {
		l.fail(fmt.Errorf("list the applets of %s: %w", busybox, err))
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" && !slices.Contains(without, applet) {
			l.link("/bin/"+applet, "busybox")
		}
	}
}

func (l *layer) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *layer) add(header tar.Header, content io.Reader) {
	if l.err != nil {
		return
	}
	header.Name = strings.TrimPrefix(header.Name, "/")
	header.Format = tar.FormatPAX
	if l.err = l.tar.WriteHeader(&header); l.err == nil && content != nil {
		_, l.err = io.Copy(l.tar, content)
	}
}

func (l *layer) dir(name string, mode int64) {
	l.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (l *layer) link(name, target string) {
	l.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (l *layer) file(name string, mode int64, content string) {
	l.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, strings.NewReader(content))
}

func (l *layer) copy(name, path string, mode int64) {
	file, err := os.Open(path)
	if err != nil {
		l.fail(err)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		l.fail(err)
		return
	}
	l.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size()}, file)
}

func (l *layer) finish() (v1.Layer, error) {
	if err := l.tar.Close(); err != nil {
		l.fail(err)
	}
	if l.err != nil {
		return nil, l.err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(l.buf.Bytes())), nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed))
}
