package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

const (
	// What belongs to no pod must be that old: it is made before the news of its pod has come.
	dirAge = 10 * time.Second
	// linkAge is for a link of a pod: it is made with the container, the log when that is started.
	linkAge = 5 * time.Minute
)

// Why logs and links go.
const (
	podGone = "its pod is gone"
	logGone = "the log it leads to is gone"
)

// Dirs decides about the directories below podLogsDir: those of pods for which known is false go. What isn't named like
// one is left alone.
func Dirs(podLogsDir string, known func(uid string) bool, now time.Time) ([]topic.Decision, error) {
	entries, err := os.ReadDir(podLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the log directories of pods: %w", err)
	}
	var found []topic.Decision
	for _, e := range entries {
		pod, ok := labels.ParseLogDir(e.Name())
		if ok && e.IsDir() && !known(pod.UID) && !young(e, dirAge, now) {
			found = append(found, topic.Decision{
				Action: topic.ActionRemoveLog, Object: filepath.Join(podLogsDir, e.Name()),
				Pod: &pod, Reason: podGone,
			})
		}
	}
	return found, nil
}

// Links decides about the links below dir into podLogsDir: those go whose log is gone, unless it is in use: then it is
// away for a moment while it is rotated.
func Links(dir, podLogsDir string, inUse map[string]bool, known func(uid string) bool,
	now time.Time,
) ([]topic.Decision, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the links to container logs: %w", err)
	}
	var found []topic.Decision
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		target, err := os.Readlink(link)
		age, pod := linkAge, filepath.Base(filepath.Dir(filepath.Dir(target)))
		if !known(pod[strings.LastIndexByte(pod, '_')+1:]) {
			age = dirAge
		}
		if err != nil || !strings.HasPrefix(target, podLogsDir+"/") || inUse[target] || young(e, age, now) {
			continue
		}
		if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
			found = append(found, topic.Decision{Action: topic.ActionRemoveLog, Object: link, Reason: logGone})
		}
	}
	return found, nil
}

func young(e fs.DirEntry, age time.Duration, now time.Time) bool {
	info, err := e.Info()
	return err != nil || now.Sub(info.ModTime()) < age
}

// RemoveOf removes the log of a container that is gone: the file, what was rotated, and the links to it.
func RemoveOf(podLogsDir, linksDir string, pod topic.Ref, container string, restartCount int) error {
	dir := filepath.Join(podLogsDir, labels.LogDir(pod), container)
	if filepath.Dir(filepath.Dir(dir)) != filepath.Clean(podLogsDir) {
		return fmt.Errorf("remove the log of container %q of %s/%s: that isn't the name of a directory", container,
			pod.Namespace, pod.Name)
	}
	log := strconv.Itoa(restartCount) + ".log"
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the log of a container: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() == log || strings.HasPrefix(e.Name(), log+".") {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	links, err := os.ReadDir(linksDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range links {
		link := filepath.Join(linksDir, e.Name())
		if target, err := os.Readlink(link); err == nil && target == filepath.Join(dir, log) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}
