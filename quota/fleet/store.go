package fleet

import "time"

const (
	maxAccounts = 1024
	maxQuotas   = 8 // of an account
)

// A store keeps the latest value of each quota of an account until it is no longer valid. The zero
// store is ready to use. Its memory is bounded.
type store[T any] struct {
	accounts map[string]map[string]kept[T] // by account and quota
}

type kept[T any] struct {
	value T
	until time.Time
}

// get returns the valid values of an account.
func (s *store[T]) get(account string, now time.Time) (all []T) {
	for _, k := range s.accounts[account] {
		if now.Before(k.until) {
			all = append(all, k.value)
		}
	}
	return all
}

// find returns the valid value of a quota.
func (s *store[T]) find(account, quota string, now time.Time) (value T, found bool) {
	k := s.accounts[account][quota]
	return k.value, now.Before(k.until)
}

// put keeps value until it is no longer valid, in place of the one before.
func (s *store[T]) put(account, quota string, value T, until, now time.Time) {
	quotas := s.accounts[account]
	if quotas == nil {
		if s.accounts == nil {
			s.accounts = make(map[string]map[string]kept[T])
		}
		if len(s.accounts) >= maxAccounts {
			s.makeRoom(now)
		}
		quotas = make(map[string]kept[T])
		s.accounts[account] = quotas
	}
	if _, found := quotas[quota]; !found && len(quotas) >= maxQuotas {
		deleteOne(quotas, func(k kept[T]) bool { return !now.Before(k.until) })
	}
	quotas[quota] = kept[T]{value, until}
}

// makeRoom removes an account, if possible one without valid values.
func (s *store[T]) makeRoom(now time.Time) {
	deleteOne(s.accounts, func(quotas map[string]kept[T]) bool {
		for _, k := range quotas {
			if now.Before(k.until) {
				return false
			}
		}
		return true
	})
}

// remove removes the value of a quota.
func (s *store[T]) remove(account, quota string) {
	quotas := s.accounts[account]
	delete(quotas, quota)
	if len(quotas) == 0 {
		delete(s.accounts, account)
	}
}

// deleteOne deletes an entry of m: of the first few the first whose value is over, or else the last.
func deleteOne[V any](m map[string]V, over func(V) bool) {
	looks, key := 8, ""
	for k, v := range m {
		key = k
		if looks--; looks == 0 || over(v) {
			break
		}
	}
	delete(m, key)
}
