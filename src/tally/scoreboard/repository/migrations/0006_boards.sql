-- Named boards with seasons, and password resets.
--
-- A score of a board belongs to one season. Closing a season changes one row of boards, whatever the number of players: the
-- rows of the season stay as its final standings. A writer holds a shared advisory lock on the board, and the close of its season an exclusive one.

CREATE TABLE boards (
    id VARCHAR(64) PRIMARY KEY,
    name VARCHAR(100) NOT NULL,
    is_ascending BOOLEAN NOT NULL,
    operator VARCHAR(8) NOT NULL,
    -- When seasons end: a cron expression in a time zone. Without one, the first season never ends.
    schedule VARCHAR(100),
    time_zone VARCHAR(64),
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    season INTEGER NOT NULL DEFAULT 1,
    season_started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    season_ends_at TIMESTAMP WITH TIME ZONE
);

CREATE INDEX idx_boards_season_ends ON boards (season_ends_at) WHERE season_ends_at IS NOT NULL;

CREATE TABLE seasons (
    board VARCHAR(64) NOT NULL REFERENCES boards (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE NOT NULL,
    players BIGINT NOT NULL,
    PRIMARY KEY (board, number)
);

-- user_id has no foreign key: in a closed season, the row of a deleted player remains with an id that is nobody's.
CREATE TABLE board_scores (
    user_id UUID NOT NULL,
    -- Without a foreign key: its check would lock one row of boards for every new player.
    board VARCHAR(64) NOT NULL,
    season INTEGER NOT NULL,
    -- Negative on ascending boards, so that the greatest ranks first on every board.
    total_score BIGINT NOT NULL CHECK (total_score BETWEEN -9007199254740991 AND 9007199254740991),
    score_first_reached_at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- Counts the changes, like that of scores.
    revision BIGINT NOT NULL DEFAULT 1,
    -- The player is banned, or was when the season closed.
    is_hidden BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (user_id, board, season)
);

CREATE INDEX idx_board_scores_rank
    ON board_scores (board, season, total_score DESC, score_first_reached_at ASC, user_id DESC) WHERE NOT is_hidden;

-- The time of the last change of a board.
CREATE INDEX idx_board_scores_reached ON board_scores (board, season, score_first_reached_at) WHERE NOT is_hidden;

CREATE FUNCTION record_new_board_scores() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rank_changes
        SELECT board, season, total_score, score_first_reached_at, user_id, 1 FROM changed WHERE NOT is_hidden;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_deleted_board_scores() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rank_changes
        SELECT board, season, total_score, score_first_reached_at, user_id, -1 FROM changed WHERE NOT is_hidden;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_changed_board_score() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rank_changes
        SELECT OLD.board, OLD.season, OLD.total_score, OLD.score_first_reached_at, OLD.user_id, -1 WHERE NOT OLD.is_hidden
        UNION ALL
        SELECT NEW.board, NEW.season, NEW.total_score, NEW.score_first_reached_at, NEW.user_id, 1 WHERE NOT NEW.is_hidden;
    RETURN NULL;
END
$$;

CREATE TRIGGER board_scores_inserted AFTER INSERT ON board_scores
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION record_new_board_scores();
CREATE TRIGGER board_scores_deleted AFTER DELETE ON board_scores
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION record_deleted_board_scores();
CREATE TRIGGER board_scores_updated AFTER UPDATE ON board_scores FOR EACH ROW
    WHEN (OLD.total_score <> NEW.total_score OR OLD.score_first_reached_at <> NEW.score_first_reached_at
        OR OLD.user_id <> NEW.user_id OR OLD.is_hidden <> NEW.is_hidden)
    EXECUTE FUNCTION record_changed_board_score();

-- The boards that an action counts on; NULL for the all-time leaderboard alone.
ALTER TABLE completed_actions ADD COLUMN boards VARCHAR(64)[];
-- What an event changed on boards: per board its season and the score before and after.
ALTER TABLE score_events ADD COLUMN boards JSONB;

CREATE FUNCTION board_lock(board VARCHAR) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('tally board ' || board, 0)
$$;

-- Changes a player's score on a board, which the caller has locked by the player's row of scores. `new_value` is the value for
-- best and latest and the points for sum, or, for adjustments, points that any operator adds. Raises TS423 if the season is due to close: the
-- caller closes it and tries again, so that the time of a change decides its season, not when the job runs. A change from before the season began, whose clock
-- is behind or which came late, counts in the season that is open.
CREATE FUNCTION apply_board_change(
    target VARCHAR, player_id UUID, new_value BIGINT, is_adjustment BOOLEAN, moment TIMESTAMP WITH TIME ZONE
) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    current boards%ROWTYPE;
    stored board_scores%ROWTYPE;
    sign INTEGER;
    before BIGINT;
    after BIGINT;
    reached TIMESTAMP WITH TIME ZONE;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(board_lock(target));
    SELECT * INTO current FROM boards b WHERE b.id = target;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such board' USING ERRCODE = 'TS405';
    END IF;
    IF moment >= current.season_ends_at THEN
        RAISE EXCEPTION '%', target USING ERRCODE = 'TS423';
    END IF;
    sign := CASE WHEN current.is_ascending THEN -1 ELSE 1 END;
    SELECT * INTO stored FROM board_scores s
        WHERE s.user_id = player_id AND s.board = target AND s.season = current.season;
    before := stored.total_score * sign;
    after := CASE
        WHEN is_adjustment OR current.operator = 'sum' THEN coalesce(before, 0) + new_value
        WHEN current.operator = 'latest' OR before IS NULL THEN new_value
        WHEN current.is_ascending THEN least(before, new_value)
        ELSE greatest(before, new_value)
    END;
    IF after > 9007199254740991 THEN
        RAISE EXCEPTION 'the score would be too great' USING ERRCODE = 'TS409';
    ELSIF after < 0 THEN
        RAISE EXCEPTION 'The score is %', coalesce(before, 0) USING ERRCODE = 'TS410';
    END IF;
    reached := greatest(moment, current.season_started_at);
    IF before IS NULL THEN
        stored.revision := 1;
        INSERT INTO board_scores (user_id, board, season, total_score, score_first_reached_at)
            VALUES (player_id, target, current.season, after * sign, reached);
    ELSIF before = after THEN
        reached := stored.score_first_reached_at;
    ELSE
        stored.revision := stored.revision + 1;
        UPDATE board_scores s
            SET total_score = after * sign, score_first_reached_at = reached, revision = stored.revision
            WHERE s.user_id = player_id AND s.board = target AND s.season = current.season;
    END IF;
    RETURN jsonb_build_object('season', current.season, 'before', before, 'after', after,
        'revision', stored.revision, 'reached', (extract(epoch FROM reached) * 1000000)::bigint);
END
$$;

DROP FUNCTION apply_score_change(TEXT, TEXT, UUID, INTEGER, TIMESTAMP WITH TIME ZONE, TIMESTAMP WITH TIME ZONE, JSONB);

-- As before, and on the boards of the action. Locks are taken in this order: token, score, boards by id, action, user. The row of
-- scores is locked even if the action does not count there, because it serialises the changes of a player.
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
    revision BIGINT,
    reached_at TIMESTAMP WITH TIME ZONE,
    boards JSONB
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    total BIGINT;
    points INTEGER := delta;
    new_revision BIGINT;
    new_reached_at TIMESTAMP WITH TIME ZONE;
    action completed_actions%ROWTYPE;
    target VARCHAR;
    change JSONB;
    changes JSONB;
    outcome JSONB;
BEGIN
    INSERT INTO consumed_tokens (token_hash, user_id, consumed_at, expires_at)
    VALUES (new_token_hash, player_id, moment, new_token_expires_at)
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT s.total_score, s.revision, s.score_first_reached_at INTO total, new_revision, new_reached_at
        FROM scores s WHERE s.user_id = player_id FOR UPDATE;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM banned_scores b WHERE b.user_id = player_id) THEN
            RAISE EXCEPTION 'the player is banned' USING ERRCODE = 'TS403';
        END IF;
        RAISE EXCEPTION 'no such player' USING ERRCODE = 'TS404';
    END IF;

    SELECT * INTO action FROM completed_actions a WHERE a.action_id = new_action_id;
    IF action.boards IS NOT NULL THEN
        -- An action of an earlier season scores once too: the index rejects the event below, and undoes all of this.
        FOR target IN SELECT b FROM unnest(action.boards) AS b WHERE b <> 'global' ORDER BY b LOOP
            change := apply_board_change(target, player_id, delta, false, moment);
            outcome := coalesce(outcome, '{}') || jsonb_build_object(target, change);
            changes := coalesce(changes, '{}') || jsonb_build_object(target, change - 'revision' - 'reached');
        END LOOP;
        IF NOT 'global' = ANY(action.boards) THEN
            points := 0;
        END IF;
    END IF;

    IF points > 9007199254740991 - total THEN
        RAISE EXCEPTION 'the score would be too great' USING ERRCODE = 'TS409';
    END IF;
    IF points > 0 OR changes IS NULL THEN
        UPDATE scores s SET
            total_score = total + points,
            score_first_reached_at = CASE WHEN points > 0 THEN moment ELSE s.score_first_reached_at END,
            revision = s.revision + 1,
            updated_at = moment
        WHERE s.user_id = player_id
        RETURNING s.revision, s.score_first_reached_at INTO new_revision, new_reached_at;
    END IF;

    INSERT INTO score_events
        (user_id, action_token_hash, action_id, score_delta, score_before, score_after, metadata, client_info, created_at,
        boards)
    VALUES (
        player_id, new_token_hash, new_action_id, delta, total, total + points, coalesce(action.metadata, '{}'),
        new_client_info, moment, changes
    );

    RETURN QUERY SELECT u.username, u.avatar_url, total, total + points, new_revision, new_reached_at, outcome
        FROM users u WHERE u.id = player_id;
END
$$;

-- Requests for a link by mail, of known and unknown addresses alike. A worker deletes each when it is done.
CREATE TABLE password_reset_requests (
    email VARCHAR(255) PRIMARY KEY,
    requested_at TIMESTAMP WITH TIME ZONE NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- When a worker may take it, again if an attempt fails.
    due_at TIMESTAMP WITH TIME ZONE NOT NULL
);

CREATE INDEX idx_password_reset_requests_due ON password_reset_requests (due_at);

-- The tokens that were sent, of which only the hash is stored. Using one deletes all of the player.
CREATE TABLE password_reset_tokens (
    token_hash VARCHAR(64) PRIMARY KEY,
    user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL
);

CREATE INDEX idx_password_reset_tokens_user ON password_reset_tokens (user_id);
CREATE INDEX idx_password_reset_tokens_expires ON password_reset_tokens (expires_at);

-- A band began at the place of a player, and kept the id of a player who was deleted later. Count the bands anew, without these ids.
LOCK TABLE scores IN SHARE MODE;
DELETE FROM rank_changes;
DELETE FROM rank_bands;
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
