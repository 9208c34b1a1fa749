package pullrecords

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// tidyEvery is how often records are compared with the images that are there: as often as images are collected.
	tidyEvery = 5 * time.Minute
	// tidyMargin is how much older than a list of images a record must be to go with its image: clocks of files are
	// coarse.
	tidyMargin = time.Minute
)

// Config is what Records need.
type Config struct {
	// RootDir is the node's, /var/lib/kubelet.
	RootDir string
	Policy  Policy
	Log     *slog.Logger
	// Checked is called with the result of each check, and Kept with how many intents and records there are after each
	// change. Neither must block; nil means that nobody asks.
	Checked func(result string)
	Kept    func(intents, records int)
}

// Records are what is known of the images that were pulled. Its methods may be called from any goroutine.
type Records struct {
	cfg Config

	// mu guards the files and what is below.
	mu    sync.Mutex
	store store
	pulls map[string]*pulls // by the image as in the spec
}

// pulls are those of one image that are under way.
type pulls struct {
	n int
	// open is true if an earlier pull may yet have brought the image.
	open bool
}

// Open makes the directories of the records.
func Open(cfg Config) (*Records, error) {
	s, err := openStore(cfg.RootDir)
	if err != nil {
		return nil, err
	}
	r := &Records{cfg: cfg, store: s, pulls: map[string]*pulls{}}
	r.tellKept()
	return r, nil
}

// Check decides whether a pod may use an image that is on the node as it is; if not, the image must be pulled with the
// pod's credentials. It records a pull secret that is good for the image. image is its name as in the spec, ref the
// runtime's reference. shown gives the pod's own credentials for the image's repository.
func (r *Records) Check(image, ref string, shown func() Credentials) bool {
	repository, err := repositoryOf(image)
	k := known{err: err}
	if err == nil {
		k = r.known(image, ref)
	}
	v := decide(r.cfg.Policy, repository, k, shown)
	if k.err != nil {
		r.cfg.Log.Warn("can't read the records of image pulls, pulling the image again with the pod's credentials",
			"image", image, "error", k.err)
	}
	if r.cfg.Checked != nil {
		r.cfg.Checked(v.result)
	}
	if v.learned != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.add(image, ref, &Credentials{KubernetesSecrets: []Secret{*v.learned}}); err != nil {
			r.cfg.Log.Warn("can't record a pull secret that gives access to the image", "image", image, "error", err)
		}
	}
	return v.use()
}

func (r *Records) known(image, ref string) known {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.store.record(ref)
	if err != nil || record != nil {
		return known{record: record, err: err}
	}
	pulling, err := r.store.intended(image)
	return known{pulling: pulling, err: err}
}

// Begin notes that the image is going to be pulled. Unless it fails, Came or Failed must follow.
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pulls[image]
	if p == nil {
		// An intent of an earlier process is of a pull whose end wasn't seen.
		earlier, err := r.store.intended(image)
		if err == nil {
			err = r.store.intend(image)
		}
		if err != nil {
			return fmt.Errorf("record the intent to pull image %q: %w", image, err)
		}
		p = &pulls{open: earlier}
		r.pulls[image] = p
		r.tellKept()
	}
	p.n++
	return nil
}

// Came notes that a pull with these credentials has brought the image. The node's credentials, and none, are
// everybody's. refs are the references that the runtime gave: some answer a pull with another than the image's ID, by
// which the image is found later.
func (r *Records) Came(image string, with Credentials, refs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.addAll(image, refs, &with)
	if err != nil {
		r.cfg.Log.Error("can't record a pull, so pods must present credentials for the image",
			"image", image, "error", err)
	}
	r.end(image, func(p *pulls) { p.open = err != nil })
}

// Failed notes that a pull has ended without the image. If that isn't sure the intent stays, and who wants the image
// must show credentials for it should it be there.
func (r *Records) Failed(image string, sure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(image, func(p *pulls) { p.open = p.open || !sure })
}

// end takes a pull away, and the intent with the last one.
func (r *Records) end(image string, note func(*pulls)) {
	p := r.pulls[image]
	if p == nil {
		return
	}
	note(p)
	if p.n--; p.n > 0 {
		return
	}
	delete(r.pulls, image)
	if !p.open {
		r.drop(image)
	}
}

func (r *Records) drop(image string) {
	if err := r.store.dropIntent(image); err != nil {
		r.cfg.Log.Warn("can't remove the intent record of a finished pull", "image", image, "error", err)
	}
	r.tellKept()
}

func (r *Records) addAll(image string, refs []string, with *Credentials) error {
	var errs []error
	for i, ref := range refs {
		if ref != "" && !slices.Contains(refs[:i], ref) {
			errs = append(errs, r.add(image, ref, with))
		}
	}
	if len(errs) == 0 {
		return errors.New("the runtime returned no reference of the image")
	}
	return errors.Join(errs...)
}

// add records credentials; nil ones leave a record that lets nobody in.
func (r *Records) add(image, ref string, with *Credentials) error {
	repository, err := repositoryOf(image)
	if err != nil {
		return err
	}
	old, err := r.store.record(ref)
	if err != nil {
		r.cfg.Log.Warn("can't read a record of image pulls, replacing it", "image", image, "error", err)
		old = nil
	}
	if err := r.store.keep(added(old, ref, repository, with, time.Now())); err != nil {
		return fmt.Errorf("write the record of image %q: %w", image, err)
	}
	r.tellKept()
	return nil
}

// tellKept reports how many intents and records there are.
func (r *Records) tellKept() {
	if r.cfg.Kept != nil {
		r.cfg.Kept(r.store.count())
	}
}

// Run cleans up the records until ctx ends, beginning with what an earlier process has left.
func (r *Records) Run(ctx context.Context, list func(context.Context) ([]*runtimeapi.Image, error)) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		asOf := time.Now()
		images, err := list(ctx)
		switch {
		case err == nil:
			r.tidy(images, asOf)
		case ctx.Err() == nil:
			r.cfg.Log.Debug("can't list images, cleaning up the records of their pulls later", "error", err,
				"retry_in", tidyEvery)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tidy makes records of intents whose image has come after all, and removes the records of images that are gone. images
// are all that the runtime has, as of the time when it was asked.
func (r *Records) tidy(images []*runtimeapi.Image, asOf time.Time) {
	listed, refs := map[string]bool{}, map[string]string{}
	for _, i := range images {
		listed[fileOf(i.GetId())] = true
		for _, name := range slices.Concat(i.GetRepoTags(), i.GetRepoDigests()) {
			listed[fileOf(name)], refs[name] = true, i.GetId()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	intents, err := r.store.intents()
	for _, image := range intents {
		name, unclear := referenceOf(image)
		if unclear != nil || refs[name] == "" || r.pulls[image] != nil {
			continue
		}
		failed := r.add(image, refs[name], nil)
		if failed == nil {
			r.drop(image)
		}
		err = errors.Join(err, failed)
	}
	if err := errors.Join(err, r.store.prune(listed, asOf.Add(-tidyMargin))); err != nil {
		r.cfg.Log.Warn("can't clean up the records of image pulls, retrying", "error", err, "retry_in", tidyEvery)
	}
	r.tellKept()
}
