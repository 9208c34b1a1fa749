package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/daemon/atomicfile"
)

// lookedEvery is the longest time between two looks at the images that counts as watched: some periods of collection.
const lookedEvery = 15 * time.Minute

// unconfirmed is a record that was loaded. After the first look the image may go, but not yet for its age.
const unconfirmed = 2

// Update is the records with the images as they are now: new ones are seen for the first time, those in use are used
// now, those that are gone are forgotten. One from the future, since the clock was set back, counts as new. Time in
// which nobody looked makes no image older, because it may have been in use.
func Update(records map[string]Record, images []*runtimeapi.Image, inUse map[string]string,
	now time.Time,
) map[string]Record {
	next := make(map[string]Record, len(images))
	for _, i := range images {
		key := Key(i)
		record, known := records[key]
		away := max(min(now.Sub(record.LastLooked), now.Sub(record.since())), 0)
		if !known || record.since().After(now) {
			record = Record{FirstSeen: now}
		} else if away > lookedEvery || record.Loaded == unconfirmed {
			record.FirstSeen = record.FirstSeen.Add(away)
			if !record.LastUsed.IsZero() {
				record.LastUsed = record.LastUsed.Add(away)
			}
		}
		record.LastLooked, record.Loaded = now, max(record.Loaded-1, 0)
		if inUse[key] != "" {
			record.LastUsed = now
		}
		next[key] = record
	}
	return next
}

// Load reads the records of an earlier process. None is no error.
func Load(path string) (map[string]Record, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	records := map[string]Record{}
	if err == nil {
		err = json.Unmarshal(data, &records)
	}
	if err != nil {
		return nil, fmt.Errorf("read the image records: %w: every image counts as new", err)
	}
	for key, record := range records {
		record.Loaded = unconfirmed
		records[key] = record
	}
	return records, nil
}

// Save writes the records, unless they are as before.
func Save(path string, before, records map[string]Record) error {
	if maps.Equal(before, records) {
		return nil
	}
	data, err := json.Marshal(records)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = atomicfile.Write(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the image records: %w: they are lost when gc restarts", err)
	}
	return nil
}
