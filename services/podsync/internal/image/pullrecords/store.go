package pullrecords

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"kubelot.dev/daemon/atomicfile"
)

// Kinds and file names of the records.
const (
	intentKind = "ImagePullIntent"
	recordKind = "ImagePulledRecord"
	filePrefix = "sha256-"
	// alpha is an older version of the API group, with the same fields; kubelets before 1.36 wrote it.
	alpha = kubeletv1beta1.GroupName + "/v1alpha1"
)

// store is the files. The directory pulling is of intents, named by the image as in the spec; pulled is of records,
// named by the runtime's reference to the image.
type store struct{ pulling, pulled string }

func openStore(rootDir string) (store, error) {
	s := store{filepath.Join(rootDir, "image_manager", "pulling"), filepath.Join(rootDir, "image_manager", "pulled")}
	if err := errors.Join(os.MkdirAll(s.pulling, 0o700), os.MkdirAll(s.pulled, 0o700)); err != nil {
		return s, fmt.Errorf("create the directories of image pull records: %w", err)
	}
	return s, nil
}

func fileOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filePrefix + hex.EncodeToString(sum[:])
}

// intended reports whether there is an intent to pull the image. One that can't be understood is one.
func (s store) intended(image string) (bool, error) {
	_, err := os.Lstat(filepath.Join(s.pulling, fileOf(image)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (s store) intend(image string) error {
	return write(s.pulling, fileOf(image), kubeletv1beta1.ImagePullIntent{TypeMeta: typeMeta(intentKind), Image: image})
}

func (s store) dropIntent(image string) error { return remove(s.pulling, fileOf(image)) }

// intents are the images that are intended to be pulled, as far as the files can be understood; those that can't stay
// where they are, and go with the next pull of their image that succeeds.
func (s store) intents() ([]string, error) {
	names, err := files(s.pulling)
	var images []string
	for _, name := range names {
		var i kubeletv1beta1.ImagePullIntent
		if read(filepath.Join(s.pulling, name), intentKind, &i, &i.TypeMeta) == nil && fileOf(i.Image) == name {
			images = append(images, i.Image)
		}
	}
	return images, err
}

// record is that of the image; nil if there is none.
func (s store) record(ref string) (*Record, error) {
	path := filepath.Join(s.pulled, fileOf(ref))
	r := &Record{}
	err := read(path, recordKind, r, &r.TypeMeta)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case r.ImageRef != ref:
		return nil, fmt.Errorf("%s is of another image, %q", path, r.ImageRef)
	}
	return r, nil
}

func (s store) keep(r *Record) error {
	r.TypeMeta = typeMeta(recordKind)
	return write(s.pulled, fileOf(r.ImageRef), r)
}

// prune removes the records, whole or not, of all images but those listed. Files changed after the given time stay.
func (s store) prune(listed map[string]bool, changedBefore time.Time) error {
	entries, err := os.ReadDir(s.pulled)
	errs := []error{err}
	for _, e := range entries {
		if listed[e.Name()] || !strings.HasPrefix(e.Name(), filePrefix) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().Before(changedBefore) {
			errs = append(errs, remove(s.pulled, e.Name()))
		}
	}
	return errors.Join(errs...)
}

// count is how many intents and records there are.
func (s store) count() (intents, records int) {
	pulling, _ := files(s.pulling)
	pulled, _ := files(s.pulled)
	return len(pulling), len(pulled)
}

// files are the names of the directory's whole records.
func files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filePrefix) && !strings.HasSuffix(e.Name(), atomicfile.Suffix) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: kubeletv1beta1.SchemeGroupVersion.String()}
}

// read decodes as strictly as the kubelet: what has a field that isn't known may mean something else.
func read(path, kind string, into any, meta *metav1.TypeMeta) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, into)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	if *meta != typeMeta(kind) && *meta != (metav1.TypeMeta{Kind: kind, APIVersion: alpha}) {
		return fmt.Errorf("decode %s: it is %q of %q, not %s", path, meta.Kind, meta.APIVersion, kind)
	}
	return nil
}

// write replaces the file as a whole, so that neither a killed process nor a machine without power leaves half of it.
func write(dir, name string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return atomicfile.WriteDurably(filepath.Join(dir, name), append(text, '\n'), 0o600)
}

func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
