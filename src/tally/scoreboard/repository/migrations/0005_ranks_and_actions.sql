-- Ranks in PostgreSQL from counts per band of scores, and actions that score once.
--
-- A band holds the players from its start, which is the place of its first player, up to the start of the next band. A rank is
-- the sum of the bands ahead and a count within one band. Writers never update a band, because a row that many of them update would make them wait
-- for each other's commit: they append their change to rank_changes. A job adds the changes to the bands and splits large ones.
-- Readers add the remaining changes themselves, so a rank is exact at any time.

CREATE TABLE rank_bands (
    board VARCHAR(64) NOT NULL,
    season INTEGER NOT NULL,
    score BIGINT NOT NULL,
    reached_at TIMESTAMP WITH TIME ZONE NOT NULL,
    user_id UUID NOT NULL,
    players BIGINT NOT NULL
);

CREATE UNIQUE INDEX idx_rank_bands_start ON rank_bands (board, season, score, reached_at DESC, user_id);

CREATE TABLE rank_changes (
    board VARCHAR(64) NOT NULL,
    season INTEGER NOT NULL,
    score BIGINT NOT NULL,
    reached_at TIMESTAMP WITH TIME ZONE NOT NULL,
    user_id UUID NOT NULL,
    -- 1 for a player who arrived at this place, -1 for one who left it.
    players SMALLINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The first band of a board starts ahead of every score, so that every score belongs to a band.
INSERT INTO rank_bands VALUES ('global', 0, 9223372036854775807, '-infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 0);
INSERT INTO rank_bands
    SELECT 'global', 0, total_score, score_first_reached_at, user_id, least(1000, players - position + 1)
    FROM (
        SELECT total_score, score_first_reached_at, user_id,
            row_number() OVER (ORDER BY total_score DESC, score_first_reached_at ASC, user_id DESC) AS position,
            count(*) OVER () AS players
        FROM scores
    ) ranked
    WHERE position % 1000 = 1;

DROP TRIGGER scores_inserted ON scores;
DROP TRIGGER scores_deleted ON scores;
DROP TRIGGER scores_truncated ON scores;
DROP FUNCTION count_new_players();
DROP FUNCTION count_lost_players();
DROP FUNCTION count_no_players();
DROP TABLE board_size;

CREATE FUNCTION record_new_scores() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rank_changes SELECT 'global', 0, total_score, score_first_reached_at, user_id, 1 FROM changed;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_deleted_scores() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rank_changes SELECT 'global', 0, total_score, score_first_reached_at, user_id, -1 FROM changed;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_changed_score() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rank_changes VALUES
        ('global', 0, OLD.total_score, OLD.score_first_reached_at, OLD.user_id, -1),
        ('global', 0, NEW.total_score, NEW.score_first_reached_at, NEW.user_id, 1);
    RETURN NULL;
END
$$;

CREATE FUNCTION forget_all_scores() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM rank_changes WHERE board = 'global';
    DELETE FROM rank_bands WHERE board = 'global';
    INSERT INTO rank_bands VALUES ('global', 0, 9223372036854775807, '-infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 0);
    RETURN NULL;
END
$$;

CREATE TRIGGER scores_inserted AFTER INSERT ON scores
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION record_new_scores();
CREATE TRIGGER scores_deleted AFTER DELETE ON scores
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION record_deleted_scores();
-- For each row, because that costs a score update less than a transition table does.
CREATE TRIGGER scores_updated AFTER UPDATE ON scores FOR EACH ROW
    WHEN (OLD.total_score <> NEW.total_score OR OLD.score_first_reached_at <> NEW.score_first_reached_at)
    EXECUTE FUNCTION record_changed_score();
CREATE TRIGGER scores_truncated AFTER TRUNCATE ON scores FOR EACH STATEMENT EXECUTE FUNCTION forget_all_scores();

-- Counts the changes of a score and of what the leaderboard shows beside it, so that Redis can ignore a write that comes late.
ALTER TABLE scores ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;

-- The scores of banned players, who have none in scores, so that every query of a leaderboard omits them.
CREATE TABLE banned_scores (
    user_id UUID PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    total_score BIGINT NOT NULL,
    score_first_reached_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revision BIGINT NOT NULL,
    banned_at TIMESTAMP WITH TIME ZONE NOT NULL
);

-- No row leads back to a deleted player: neither by the id, nor by an action or a token that another table has too.
DELETE FROM completed_actions a WHERE NOT EXISTS (SELECT FROM users u WHERE u.id = a.user_id);
DELETE FROM consumed_tokens c WHERE NOT EXISTS (SELECT FROM users u WHERE u.id = c.user_id);
DELETE FROM failed_sign_ins f WHERE f.subject ~ '^(account|change):'
    AND NOT EXISTS (SELECT FROM users u WHERE u.id::text = substring(f.subject FROM ':([0-9a-f-]{36})'));
UPDATE score_events SET action_id = gen_random_uuid()::text, action_token_hash = gen_random_uuid()::text, metadata = '{}'
    WHERE user_id IS NULL;
-- For the deletion of an account.
CREATE INDEX idx_completed_actions_user ON completed_actions (user_id);

-- An action scores once, whichever of its tokens is used. An id that was reported again after its retention gets a suffix.
UPDATE score_events e SET action_id = left(e.action_id, 60) || ':' || e.id
    WHERE EXISTS (SELECT FROM score_events later WHERE later.action_id = e.action_id
        AND (later.created_at, later.id) > (e.created_at, e.id));
CREATE UNIQUE INDEX idx_score_events_action ON score_events (action_id);

-- Addresses from which players have signed in. Sessions end sooner: they are deleted a day after their end.
CREATE TABLE known_addresses (
    user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    network INET NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (user_id, network)
);

CREATE INDEX idx_known_addresses_seen ON known_addresses (seen_at);
INSERT INTO known_addresses
    SELECT user_id, CASE family(ip_address) WHEN 6 THEN network(set_masklen(ip_address, 64))::inet ELSE ip_address END AS network,
        max(created_at)
    FROM sessions WHERE ip_address IS NOT NULL GROUP BY 1, 2;

CREATE INDEX idx_sessions_revoked_at ON sessions (revoked_at) WHERE revoked_at IS NOT NULL;

DROP FUNCTION apply_score_change(TEXT, TEXT, UUID, INTEGER, TIMESTAMP WITH TIME ZONE, TIMESTAMP WITH TIME ZONE, JSONB);

-- A score change in one round trip and one transaction. Locks are taken in this order: token, score, action, user. Concurrent
-- uses of one token meet at its insertion, and all but the first return no row. A second token of an action fails at the unique index of score_events, which undoes
-- its use. Every refusal is raised, so that nothing of it stays.
CREATE FUNCTION apply_score_change(
    new_token_hash TEXT,
    new_action_id TEXT,
    player_id UUID,
    delta INTEGER,
    new_token_expires_at TIMESTAMP WITH TIME ZONE,
    moment TIMESTAMP WITH TIME ZONE,
    new_client_info JSONB
) RETURNS TABLE (
    username VARCHAR,
    avatar_url VARCHAR,
    score_before BIGINT,
    score_after BIGINT,
    revision BIGINT
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    total BIGINT;
    new_revision BIGINT;
BEGIN
    INSERT INTO consumed_tokens (token_hash, user_id, consumed_at, expires_at)
    VALUES (new_token_hash, player_id, moment, new_token_expires_at)
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT s.total_score INTO total FROM scores s WHERE s.user_id = player_id FOR UPDATE;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM banned_scores b WHERE b.user_id = player_id) THEN
            RAISE EXCEPTION 'the player is banned' USING ERRCODE = 'TS403';
        END IF;
        RAISE EXCEPTION 'no such player' USING ERRCODE = 'TS404';
    END IF;
    IF delta > 9007199254740991 - total THEN
        RAISE EXCEPTION 'the score would be too great' USING ERRCODE = 'TS409';
    END IF;

    UPDATE scores s SET
        total_score = total + delta,
        score_first_reached_at = CASE WHEN delta > 0 THEN moment ELSE s.score_first_reached_at END,
        revision = s.revision + 1,
        updated_at = moment
    WHERE s.user_id = player_id
    RETURNING s.revision INTO new_revision;

    INSERT INTO score_events
        (user_id, action_token_hash, action_id, score_delta, score_before, score_after, metadata, client_info, created_at)
    VALUES (
        player_id, new_token_hash, new_action_id, delta, total, total + delta,
        coalesce((SELECT a.metadata FROM completed_actions a WHERE a.action_id = new_action_id), '{}'),
        new_client_info, moment
    );

    RETURN QUERY SELECT u.username, u.avatar_url, total, total + delta, new_revision FROM users u WHERE u.id = player_id;
END
$$;
